"""The Hessian of a loss and its products with directions, in both hosts."""

import jax
import jax.numpy as jnp
import numpy as np
import pyro
import pytest
import torch

import pyro_moments
from numpyro_moments.fitting import flat_loss as jax_loss
from pyro_moments.fitting import flat_loss as torch_loss
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.objectives.base import Program

rng = np.random.default_rng(5)
SIZE = 7
MIX = rng.normal(size=(SIZE, SIZE))
PLACE = rng.normal(size=SIZE)
OTHER = PLACE + 1.0


def hessian(point):
    """Of Σ exp(MIX x)."""
    return MIX.T @ (np.exp(MIX @ point)[:, None] * MIX)


class Jax:
    """Places are passed on."""

    def __init__(self):
        self.traces = 0
        self.curvature = jax_loss.Hessian(self.slope)

    def slope(self, point):
        self.traces += 1
        return jax.grad(lambda x: jnp.exp(jnp.asarray(MIX) @ x).sum())(point)

    def dense(self, point):
        return self.curvature.dense(jnp.asarray(point))

    def along(self, point, direction):
        return self.curvature.product(jnp.asarray(point), jnp.asarray(direction))


class Torch:
    """Parameters are two leaves, which move."""

    def __init__(self, exponential=torch.exp):
        self.leaves = [torch.zeros(3, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)]
        self.losses, self.exponential = 0, exponential
        for leaf in self.leaves:
            leaf.requires_grad_()
        self.curvature = torch_loss.Hessian(self.loss, self.leaves)

    def loss(self):
        self.losses += 1
        flat = torch.cat([leaf.reshape(-1) for leaf in self.leaves])
        return self.exponential(torch.tensor(MIX) @ flat).sum()

    def move(self, point):
        with torch.no_grad():
            for leaf, part in zip(self.leaves, np.split(point, [3]), strict=True):
                leaf.copy_(torch.tensor(part).reshape(leaf.shape))

    def dense(self, point):
        self.move(point)
        return self.curvature.dense()

    def along(self, point, direction):
        self.move(point)
        return self.curvature.product(direction)


@pytest.fixture(params=[Jax, Torch])
def host(request):
    with jax.enable_x64(True):
        yield request.param()


@pytest.mark.parametrize("together", [1, 2, 3, SIZE, 100])
def test_the_hessian_is_exact_however_many_products_are_made_together(host, together, monkeypatch):
    monkeypatch.setattr(jax_loss.Hessian, "_bytes", lambda self, product: 1)
    monkeypatch.setattr(jax_loss, "MAX_BATCH_BYTES", together)
    monkeypatch.setattr(torch_loss, "BATCH_ROOM", SIZE * together)  # its largest step has as many
    for point in (PLACE, OTHER):
        np.testing.assert_allclose(host.dense(point), hessian(point), rtol=1e-12)


def test_products_are_those_of_the_place(host):
    for point in (PLACE, OTHER, PLACE):
        for direction in rng.normal(size=(2, SIZE)):
            found = host.along(point, direction)
            np.testing.assert_allclose(found, hessian(point) @ direction, rtol=1e-10)


def test_jax_linearises_a_slope_once():
    with jax.enable_x64(True):
        host = Jax()
        for point in (PLACE, OTHER):
            host.dense(point)
            host.along(point, PLACE)
    assert host.traces == 1


def test_the_room_bounds_the_steps_that_jax_makes_together():
    with jax.enable_x64(True):
        host = Jax()
        host.along(PLACE, PLACE)
        product = host.curvature._cache[1].product
        assert 2 * 8 * SIZE <= host.curvature._bytes(product) <= 20 * 8 * SIZE


class NotBatched(torch.autograd.Function):
    """exp, whose derivative looks at a number."""

    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        assert np.isfinite(gradient.sum().item())
        return gradient * ctx.saved_tensors[0]


def test_torch_goes_on_row_by_row_where_an_operation_has_no_rule_for_batches():
    host = Torch(NotBatched.apply)
    np.testing.assert_allclose(host.dense(PLACE), hessian(PLACE), rtol=1e-12)
    assert not host.curvature._rows._batched
    np.testing.assert_allclose(host.dense(OTHER), hessian(OTHER), rtol=1e-12)
    assert host.losses == 2


def test_torch_makes_large_steps_one_by_one(monkeypatch):
    host = Torch()
    monkeypatch.setattr(torch_loss, "BATCHABLE_SIZE", SIZE)
    sizes, products = [], torch_loss._products
    monkeypatch.setattr(
        torch_loss, "_products", lambda *args, **how: sizes.append(how) or products(*args, **how)
    )
    np.testing.assert_allclose(host.dense(PLACE), hessian(PLACE), rtol=1e-12)
    assert sizes == [{"is_batched": False}] * SIZE


@pytest.mark.parametrize("room", [1, 1 << 19])
def test_parameters_that_the_slope_does_not_depend_on_have_rows_of_zeros(room, monkeypatch):
    monkeypatch.setattr(torch_loss, "BATCH_ROOM", room)
    leaves = [torch.ones(size, dtype=torch.float64, requires_grad=True) for size in (2, 3)]
    found = torch_loss.Hessian(lambda: (leaves[0] ** 3 / 6).sum() + leaves[1].sum(), leaves)
    np.testing.assert_allclose(found.dense(), np.diag([1.0, 1, 0, 0, 0]))


def test_parameters_that_a_distribution_refuses_are_a_step_too_far():
    """The loss is then no number, as in NumPyro; other errors are the user's."""

    def model():
        pyro.sample("x", pyro.distributions.Normal(0.0, 1.0))

    def fails():
        raise ValueError(message)

    pyro.clear_param_store()
    elbo = pyro_moments.DeterministicELBO()
    program = Program(model, pyro_moments.DVIGuide(), (), {})
    parameters = Parameters.from_run(lambda: program.loss(elbo))
    broken = torch_loss.flat_loss(elbo, program._replace(model=fails), parameters)
    point, message = parameters.vector(), "Poisson got an invalid parameter 'rate'"
    value, slope = broken.value_and_slope(point)
    assert np.isnan([value, *slope]).all()
    message = "the data"
    with pytest.raises(ValueError, match=message):
        broken.value_and_slope(point)
