"""Moments through functions, also under vmap."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide, Moments, UnsupportedMoments, propagate


@pytest.fixture
def network():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def moments(seed=0):
    root = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(seed))
    return Moments(torch.ones(4, 3), covariance=root @ root.mT)


def test_diagonal_is_the_default(network):
    result = propagate(network, moments())
    assert result.covariance is None
    assert result.variance.shape == (4, 2)


def test_certain_arguments_and_structures_pass_through():
    noisy = moments()
    result = propagate(lambda x, k: {"sum": x + k, "rest": (k, x[..., 0])}, noisy, 2.0)
    assert torch.allclose(result["sum"].mean, noisy.mean + 2)
    assert result["rest"][0] == 2.0
    assert torch.allclose(result["rest"][1].variance, noisy.variance[..., 0])


@pytest.mark.parametrize("propagation", ["analytic", "mean", "sampled"])
def test_moments_inside_structures_are_inputs(propagation):
    first, second = moments(0), moments(1)
    options = {"propagation": propagation, "num_particles": 20_000}
    result = propagate(
        lambda x, k: [k * x["a"] - x["b"][0]], {"a": first, "b": (second,)}, 2.0, **options
    )
    variance = {"mean": 0 * first.variance}.get(propagation, 4 * first.variance + second.variance)
    assert torch.allclose(result[0].mean, first.mean, atol=0.2)
    assert torch.allclose(result[0].variance, variance, rtol=0.05)
    with pytest.raises(UnsupportedMoments, match=r"input 0, part 1"):
        propagate(lambda x: torch.sort(x["b"][0]), {"a": first, "b": (second,)})


def test_moments_checks_its_shapes():
    with pytest.raises(ValueError, match="exactly one"):
        Moments(torch.zeros(2))
    with pytest.raises(ValueError, match=r"variance has shape \(3,\)"):
        Moments(torch.zeros(2), variance=torch.ones(3))
    with pytest.raises(ValueError, match=r"needs \(2, 2\)"):
        Moments(torch.zeros(2), covariance=torch.ones(3, 3))


def test_vector_inputs_keep_their_covariance():
    matrix = torch.randn(2, 3)
    noisy = Moments(torch.ones(3), variance=torch.full((3,), 2.0))
    result = propagate(lambda x: matrix @ x, noisy, covariance="full")
    assert torch.allclose(result.covariance, 2 * matrix @ matrix.mT, rtol=1e-5)


def test_gradients_reach_the_inputs():
    mean = torch.ones(3, requires_grad=True)
    result = propagate(torch.tanh, Moments(mean, variance=torch.ones(3)))
    result.variance.sum().backward()
    assert torch.isfinite(mean.grad).all()
    assert (mean.grad != 0).all()


X = torch.linspace(-1.0, 1.0, 15).reshape(5, 3)
INPUTS = Moments(X, variance=torch.full((5, 3), 0.1))

MAPPED = {
    "a function": torch.vmap(torch.tanh),
    "an operator": torch.vmap(lambda row: 2 * row + row),
    "beside data": lambda h: torch.vmap(lambda row, x: row * x)(h, X),
    "of data": lambda h: torch.vmap(lambda x: x @ h[0])(X),
    "of other axes": torch.func.vmap(torch.sum, in_dims=1),
}


@pytest.mark.parametrize("name", MAPPED)
def test_values(name):
    with pytest.raises(UnsupportedMoments) as raised:
        propagate(MAPPED[name], INPUTS)
    assert raised.value.operation == "torch.vmap"
    assert "test_vmap.py" in raised.value.location
    assert raised.value.sites == ("input 0",)
    assert "torch.stack" in raised.value.remedy


def model(rows):
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 5):
        pyro.sample("obs", dist.Normal(rows(w), 1.0), obs=torch.ones(5))


@pytest.mark.parametrize("propagation", ["analytic", "sampled"])
def test_models(propagation):
    elbo = DeterministicELBO(propagation=propagation)
    mapped = lambda w: torch.vmap(lambda x: torch.tanh(x @ w))(X)  # noqa: E731
    with pytest.raises(UnsupportedMoments, match=r"torch\.vmap"):
        elbo.loss(lambda: model(mapped), DVIGuide())
    for rows in (
        lambda w: torch.tanh(X @ w),
        lambda w: torch.stack([torch.tanh(x @ w) for x in X]),
    ):
        pyro.clear_param_store()
        assert elbo.loss(lambda rows=rows: model(rows), DVIGuide()) > 0


def test_other_transforms_are_not_called_vmap():
    with pytest.raises(UnsupportedMoments) as raised:
        propagate(torch.func.grad(lambda h: h.tanh().sum()), INPUTS)
    assert raised.value.operation == "aten.tanh.default"


def test_data_may_be_mapped():
    """What is certain is no concern of the rules."""
    found = propagate(lambda h: h * torch.vmap(torch.tanh)(X), INPUTS)
    torch.testing.assert_close(found.mean, X * X.tanh())
