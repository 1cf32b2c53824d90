"""propagate: moments of any function for uncertain inputs, without a model."""

import pytest
import torch
from torch import nn

from pyro_moments import Moments, UnsupportedMoments, propagate


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
