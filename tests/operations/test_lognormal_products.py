"""A scale times what it scales, jointly Gaussian as in a guide with covariances."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
from pyro_moments import Moments, propagate
from tests.oracles.quadrature import hermite_grid

RANDOM = np.random.default_rng(7)
ROOT = RANDOM.normal(size=(5, 5)) * 0.3
MEAN, COVARIANCE = RANDOM.normal(size=5), ROOT @ ROOT.T

PROGRAMS = {
    "one scale": lambda n, z: n.exp(z[..., :1]) * z[..., 1:4],
    "other order": lambda n, z: z[..., 1:4] * n.exp(z[..., :1]),
    "own scales": lambda n, z: n.exp(z[..., :2]) * z[..., 2:4],
    "rate and factor": lambda n, z: 2 * n.exp(-0.5 * z[..., :1]) * z[..., 1:4],
    "walk": lambda n, z: z[..., 4:] + n.cumsum(n.exp(z[..., :1]) * z[..., 1:4], -1),
    "two products": lambda n, z: (
        n.cumsum(n.exp(z[..., :1]) * z[..., 1:3], -1) + n.exp(0.5 * z[..., 3:4]) * z[..., 1:5:3]
    ),
    "beside its scale": lambda n, z: n.exp(z[..., :1]) * z[..., 1:4] + z[..., :1],
}


def exact(program, mean, covariance):
    """Mean and covariance by a product of Gauss–Hermite rules, differentiable."""
    z, weights = (torch.tensor(part) for part in hermite_grid(11, 5))
    values = program(torch, mean + z @ torch.linalg.cholesky(covariance).T)
    centre = weights @ values
    return centre, (values - centre).T @ (weights[:, None] * (values - centre))


def found(program, mean, covariance):
    result = propagate(
        lambda z: program(torch, z), Moments(mean, covariance=covariance), covariance="full"
    )
    return result.mean, result.covariance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_moments_and_their_gradients(name, dtype):
    results = []
    for function in (found, exact):
        precision = dtype if function is found else torch.float64
        inputs = [
            torch.tensor(part, dtype=precision, requires_grad=True) for part in (MEAN, COVARIANCE)
        ]
        mean, covariance = function(PROGRAMS[name], *inputs)
        slopes = torch.autograd.grad(mean.sum() + (covariance**2).sum(), inputs)
        symmetric = slopes[1] + slopes[1].T
        results.append([part.double() for part in (mean, covariance, slopes[0], symmetric)])
    accuracy = 1e-8 if dtype == torch.float64 else 2e-5
    for ours, theirs in zip(*results, strict=True):
        size = float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=accuracy * size)


@pytest.mark.parametrize("name", ["own scales", "walk"])
def test_rows_and_jax_agree(name):
    program = PROGRAMS[name]
    mean, covariance = np.stack([MEAN, -MEAN]), np.stack([COVARIANCE, 2 * COVARIANCE])
    rows = found(program, torch.tensor(mean), torch.tensor(covariance))
    single = [
        found(program, torch.tensor(one), torch.tensor(other))
        for one, other in zip(mean, covariance, strict=True)
    ]
    in_jax = numpyro_moments.propagate(
        lambda z: program(jnp, z),
        numpyro_moments.Moments(jnp.asarray(mean), covariance=jnp.asarray(covariance)),
        covariance="full",
    )
    for ours, alone, other in zip(
        rows, zip(*single, strict=True), (in_jax.mean, in_jax.covariance), strict=True
    ):
        torch.testing.assert_close(ours, torch.stack(alone), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spread", [1e-12, 1e3])
def test_extreme_spreads_give_no_nan(spread):
    """And a factor that is known from the other has no negative variance."""
    root = np.ones((5, 1)) * np.array([1, -1, 1, 0.5, 0])[:, None]
    for dtype in (torch.float32, torch.float64):
        inputs = [
            torch.tensor(part, dtype=dtype, requires_grad=True)
            for part in (MEAN, spread * root @ root.T)
        ]
        mean, covariance = found(PROGRAMS["one scale"], *inputs)
        slopes = torch.autograd.grad(mean.sum() + torch.diagonal(covariance).sum(), inputs)
        assert (torch.diagonal(covariance) >= 0).all()
        assert all(torch.isfinite(slope).all() for slope in slopes)


BENT = {
    "hyperbolic tangents": lambda n, z: n.exp(z[..., :1]) * n.tanh(z[..., 1:4]),
    "other order": lambda n, z: n.sin(z[..., 1:4]) * n.exp(z[..., :1]),
    "rate and factor": lambda n, z: 2 * n.exp(-0.5 * z[..., :1]) * n.tanh(z[..., 1:4] - 0.3),
    "chain": lambda n, z: n.exp(z[..., :1]) * n.exp(-0.3 * n.exp(z[..., 1:4])),
}


def moments_of_pairs(program):
    """Means and variances by rules of 60 points in the two variables that each depends on."""
    z, weights = (torch.tensor(part) for part in hermite_grid(60, 2))
    moments = []
    for place in (1, 2, 3):
        keys = [0, place]
        points = torch.tensor(MEAN).expand(len(z), -1).clone()
        root = np.linalg.cholesky(COVARIANCE[np.ix_(keys, keys)])
        points[:, keys] += z @ torch.tensor(root).T
        values = program(torch, points)[:, place - 1]
        centre = weights @ values
        moments.append(torch.stack([centre, weights @ (values - centre) ** 2]))
    return torch.stack(moments, -1)


@pytest.mark.parametrize("name", BENT)
def test_exponentials_beside_other_functions_have_exact_means_and_variances(name):
    expected = moments_of_pairs(BENT[name])
    for dtype, accuracy in ((torch.float64, 1e-9), (torch.float32, 3e-6)):
        inputs = (torch.tensor(part, dtype=dtype) for part in (MEAN, COVARIANCE))
        mean, covariance = found(BENT[name], *inputs)
        moments = torch.stack([mean, torch.diagonal(covariance)])
        torch.testing.assert_close(moments, expected.to(dtype), rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("spread", [1e-12, 100])
def test_extreme_spreads_of_exponentials_beside_other_functions_give_no_nan(spread):
    for dtype in (torch.float32, torch.float64):
        inputs = [
            torch.tensor(part, dtype=dtype, requires_grad=True)
            for part in (MEAN, spread * COVARIANCE)
        ]
        mean, covariance = found(BENT["hyperbolic tangents"], *inputs)
        variance = torch.diagonal(covariance)
        slopes = torch.autograd.grad(mean.sum() + variance.sum(), inputs)
        assert (variance > 1e-15).all()
        assert all(torch.isfinite(slope).all() for slope in slopes)
