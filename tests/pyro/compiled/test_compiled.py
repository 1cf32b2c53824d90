"""compiled=True gives the numbers of the eager program, gradients included."""

import copy

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.pyro import models
from tests.pyro.compiled.compiling import assert_same, gradients, make, perturb, programs
from tests.pyro.models import subsampled

X, Y = models.data()


# A fallback would make the tests compare the eager program with itself.
pytestmark = pytest.mark.filterwarnings("error::moment_calculus.errors.CaptureWarning")


def hierarchy(x, y):
    centre = pyro.sample("centre", dist.Normal(0.0, 2.0))
    with pyro.plate("groups", 4, dim=-2):
        mean = pyro.sample("mean", dist.Normal(centre, 0.7))
        with pyro.plate("data", 5, dim=-1):
            pyro.sample("obs", dist.Normal(mean, 1.0), obs=y.reshape(4, 5))


def repeated(x, y):
    """Rows of a hidden layer that are repeated in sums over all rows."""
    x, y = x[:4], y[:3]
    first = pyro.sample("first", dist.Normal(0.0, 1.0).expand([x.shape[-1], 3]).to_event(2))
    second = pyro.sample("second", dist.Normal(0.0, 1.0).expand([3, len(y)]).to_event(2))
    hidden = torch.relu(torch.relu(x @ first) @ second)
    rows = torch.arange(len(x)).div(2, rounding_mode="floor")[:, None].expand(hidden.shape)
    sums = torch.ones(len(x), dtype=x.dtype) @ torch.take_along_dim(hidden, rows, 0)
    models.observe(y, dist.Normal(sums, 1.0), y)


def labels(y):
    return (y > 0).long() + (y > 1).long()


PROGRAMS = {
    "mlp": lambda: models.sequential(1),
    "function": lambda: models.plain_function,
    "heteroscedastic": models.Heteroscedastic,
    "classifier": models.Classifier,
    "residual": models.residual,
    "hierarchy": lambda: hierarchy,
    "subsampled": lambda: subsampled,
    "repeated": lambda: repeated,
}
CASES = [(kind, "diagonal") for kind in PROGRAMS if kind != "repeated"]
CASES += [("mlp", "full"), ("heteroscedastic", "full"), ("function", "full")]
CASES += [("heteroscedastic", "backward"), ("classifier", "backward"), ("residual", "backward")]
CASES += [("repeated", "backward")]


@pytest.mark.parametrize(("kind", "covariance"), [*CASES, ("residual", "full")])
def test_equals_the_eager_program(kind, covariance, double_precision):
    _assert_equals_the_eager_program(kind, covariance)


@pytest.mark.parametrize(("kind", "covariance"), [("function", "full"), ("classifier", "diagonal")])
def test_equals_the_eager_program_in_single_precision(kind, covariance):
    _assert_equals_the_eager_program(kind, covariance)


def _assert_equals_the_eager_program(kind, covariance):
    x, y = (part.to(torch.get_default_dtype()) for part in models.data())
    model, guide = PROGRAMS[kind](), DVIGuide(init_scale=0.2)
    if kind == "classifier":
        model.network[1], y = nn.ReLU(), labels(y)
    elbo = make(covariance=covariance)
    assert_same(elbo, DeterministicELBO(covariance=covariance), model, guide, x, y)
    perturb(guide)
    assert_same(elbo, DeterministicELBO(covariance=covariance), model, guide, x + 1, y)
    assert len(programs(elbo)) == 1


def neuron(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    models.observe(x, dist.Normal(b * torch.relu(x @ w), 0.3), y)


def test_svi_trains_as_the_eager_program_does():
    losses = []
    for elbo in (make(), DeterministicELBO()):
        pyro.clear_param_store()
        pyro.set_rng_seed(1)
        svi = SVI(models.sequential(), DVIGuide(), elbo)
        losses.append([svi.step(X, Y) for _ in range(20)])
        assert svi.evaluate_loss(X, Y) < losses[-1][0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_gradients_add_up_and_share_no_memory():
    elbo, guide = make(), DVIGuide()
    model = models.sequential()
    for _ in range(2):
        elbo.loss_and_grads(model, guide, X, Y)
    leaves = list(guide.parameters())
    doubled = [leaf.grad.clone() for leaf in leaves]
    single = gradients(elbo, model, guide, X, Y)[1]
    for leaf in leaves:
        leaf.grad = None
    elbo.loss_and_grads(model, guide, X, Y)
    for leaf, twice in zip(leaves, doubled, strict=True):
        torch.testing.assert_close(2 * leaf.grad, twice)
    assert single
    assert len({leaf.grad.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)


def test_differentiable_loss_and_module():
    with pyro.settings.context(module_local_params=True):
        model = models.sequential()
        guide = DVIGuide(model)
        elbo = make()(model, guide)
        elbo(X, Y)
        plain = DeterministicELBO()(model, guide)
        found = torch.autograd.grad(2 * elbo(X, Y), list(guide.parameters()))
        expected = torch.autograd.grad(2 * plain(X, Y), list(guide.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_second_derivatives_are_refused():
    elbo, guide = make(), DVIGuide()
    loss = elbo.differentiable_loss(subsampled, guide, X, Y)
    with pytest.raises(RuntimeError, match="differentiated once"):
        torch.autograd.grad(loss, list(guide.parameters()), create_graph=True)


def test_gradients_of_arguments_and_of_what_comes_before():
    """A deterministic network in front of the model is trained through its outputs."""
    front = nn.Linear(3, 3)
    slopes = []
    for elbo in (make(), DeterministicELBO()):
        guide = DVIGuide()
        pyro.set_rng_seed(0)
        pyro.clear_param_store()
        elbo.loss_and_grads(subsampled, guide, front(X), Y)
        slopes.append([p.grad.clone() for p in front.parameters()])
        front.zero_grad()
    torch.testing.assert_close(slopes[0], slopes[1])


def test_refusals_are_those_of_the_eager_program():
    def model():
        pyro.sample("w", dist.Normal(0.0, 1.0)).digamma()

    with pytest.raises(UnsupportedMoments, match="digamma"):
        make().loss(model, DVIGuide())


def test_copies_capture_again():
    elbo, guide = make(), DVIGuide()
    loss = elbo.loss(neuron, guide, X, Y)
    duplicate = copy.deepcopy(elbo)
    assert duplicate.compiled.programs == {}
    assert duplicate.loss(neuron, guide, X, Y) == loss


def test_hooks_of_parameters_run():
    elbo, guide = make(), DVIGuide()
    elbo.loss_and_grads(subsampled, guide, X, Y)
    parameter = next(guide.parameters())
    plain, parameter.grad = parameter.grad, None
    parameter.register_hook(lambda gradient: 3 * gradient)
    elbo.loss_and_grads(subsampled, guide, X, Y)
    torch.testing.assert_close(parameter.grad, 3 * plain)


class Features(pyro.nn.PyroModule):
    """A Bayesian last layer on deterministic features that are trained."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())

    def forward(self, x, y):
        subsampled(self.features(x)[:, :3], y)


@pytest.mark.parametrize("local", [True, False])
def test_deterministic_parameters(local):
    with pyro.settings.context(module_local_params=local):
        model, guide = Features().eval(), DVIGuide()
        slopes = []
        for elbo in (make(), DeterministicELBO()):
            elbo.loss_and_grads(model, guide, X, Y)
            leaves = [*model.parameters(), *guide.parameters()]
            slopes.append([leaf.grad for leaf in leaves])
            for leaf in leaves:
                leaf.grad = None
    assert len(slopes[0]) == 6
    torch.testing.assert_close(*slopes)


def test_data_that_are_not_finite_are_named():
    elbo, guide = make(), DVIGuide()
    elbo.loss_and_grads(subsampled, guide, X, Y)
    with pytest.raises(UnsupportedMoments, match="data of observed site 'obs' has 1 NaN"):
        elbo.loss_and_grads(subsampled, guide, X, torch.where(Y[3] == Y, torch.nan, Y))


def test_autocast():
    """The casts that autocast makes are captured; what is captured is not cast again."""
    model, guide, front = models.sequential(), DVIGuide(), nn.Linear(3, 3)

    def deep(x, y):
        return model(front(x), y)

    elbo, eager = make(), DeterministicELBO()
    plain = eager.loss(deep, guide, X, Y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(elbo, eager, deep, guide, X, Y)
        assert elbo.loss(deep, guide, X, Y) != plain
    assert elbo.loss(deep, guide, X, Y) == pytest.approx(plain, rel=1e-6)
