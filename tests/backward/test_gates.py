"""Products of values that depend on each other in an unknown way: gates of recurrent cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
import pyro_moments
from moment_calculus.errors import DependenceWarning, UnsupportedMoments
from tests.checks.jaxprs import by_numpy

UNITS, STEPS = 4, 12
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(STEPS, 3, 2))
WEIGHTS = [
    RANDOM.normal(size=(2, 4 * UNITS)) / 2**0.5,
    RANDOM.normal(size=(UNITS, 4 * UNITS)) / UNITS**0.5,
    RANDOM.normal(size=4 * UNITS) / 2,
]


def lstm(xp, sigmoid, inputs, mapped, hidden, bias):
    """The cell as textbooks write it, unrolled."""
    h = c = xp.zeros((3, UNITS), dtype=inputs.dtype)
    for x in inputs:
        gates = x @ mapped + h @ hidden + bias
        i, f, g, o = (gates[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * xp.tanh(g)
        h = sigmoid(o) * xp.tanh(c)
    return h


def gru(xp, sigmoid, inputs, mapped, hidden, bias):
    """A gated unit without the fourth block of the weights."""
    h = xp.zeros((3, UNITS), dtype=inputs.dtype)
    for x in inputs:
        ours, theirs = x @ mapped + bias, h @ hidden
        r, z, n = (ours[:, k * UNITS : (k + 1) * UNITS] for k in range(3))
        s, y, m = (theirs[:, k * UNITS : (k + 1) * UNITS] for k in range(3))
        z = sigmoid(z + y)
        h = (1 - z) * xp.tanh(n + sigmoid(r + s) * m) + z * h
    return h


CELLS = [lstm, gru]
pytestmark = pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")


def in_torch(cell, steps=STEPS):
    return lambda *weights: cell(torch, torch.sigmoid, torch.as_tensor(X[:steps]), *weights)


def moments(package, array, scale):
    return [package.Moments(array(w), variance=array(np.full_like(w, scale**2))) for w in WEIGHTS]


def propagated(cell, scale, covariance="backward", steps=STEPS):
    inputs = moments(pyro_moments, torch.as_tensor, scale)
    return pyro_moments.propagate(in_torch(cell, steps), *inputs, covariance=covariance)


@pytest.mark.parametrize("cell", CELLS)
def test_small_variances(cell):
    means = tuple(map(torch.as_tensor, WEIGHTS))
    slopes = torch.func.jacrev(in_torch(cell), argnums=(0, 1, 2))(*means)
    exact = 1e-10 * sum((slope**2).flatten(2).sum(-1) for slope in slopes)
    with pytest.warns(DependenceWarning, match="left out of its mean"):
        found = propagated(cell, 1e-5)
    torch.testing.assert_close(found.variance, exact, rtol=1e-4, atol=1e-14)
    torch.testing.assert_close(found.mean, in_torch(cell)(*means), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("cell", "scale", "spread", "off"),
    [(lstm, 0.1, 0.02, 0.03), (lstm, 0.3, 0.08, 0.06), (gru, 0.1, 0.02, 0.04)],
)
def test_the_deviations_of_draws(cell, scale, spread, off):
    generator = torch.Generator().manual_seed(0)
    draws = [
        torch.as_tensor(w) + scale * torch.randn((20_000, *w.shape), generator=generator).double()
        for w in WEIGHTS
    ]
    drawn = torch.vmap(in_torch(cell))(*draws)
    found, deviation = propagated(cell, scale), drawn.std(0)
    ratio = found.variance.sqrt() / deviation
    assert float(ratio.log().mean().exp()) == pytest.approx(1, abs=spread)
    assert float(((found.mean - drawn.mean(0)) / deviation).abs().mean()) < off


@pytest.mark.parametrize("cell", CELLS)
def test_hosts_agree_with_gradients(cell):
    ours = [m.mean.requires_grad_() for m in moments(pyro_moments, torch.tensor, 0.2)]
    inputs = [pyro_moments.Moments(m, variance=torch.full_like(m, 0.04)) for m in ours]
    found = pyro_moments.propagate(in_torch(cell, 2), *inputs, covariance="backward")
    (found.variance.sum() + (found.mean**2).sum()).backward()
    with jax.enable_x64(True):

        def by_jax(means):
            inputs = [
                numpyro_moments.Moments(mean, variance=jnp.full_like(mean, 0.04)) for mean in means
            ]
            program = lambda *w: cell(jnp, jax.nn.sigmoid, jnp.asarray(X[:2]), *w)  # noqa: E731
            found = numpyro_moments.propagate(program, *inputs, covariance="backward")
            return found.variance.sum() + (found.mean**2).sum(), found.variance

        gradients, theirs = by_numpy(jax.grad(by_jax, has_aux=True))([*map(jnp.asarray, WEIGHTS)])
    np.testing.assert_allclose(theirs, found.variance.detach(), rtol=1e-10)
    for gradient, mean in zip(gradients, ours, strict=True):
        np.testing.assert_allclose(gradient, mean.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_other_covariances_name_backward_as_the_remedy(covariance):
    def program(weight):
        hidden = torch.tanh(torch.as_tensor(X[0]) @ weight)
        return torch.sigmoid(hidden @ hidden.mT) * hidden[:, :3]

    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        propagated(lstm, 0.1, covariance, steps=2)
    inputs = moments(pyro_moments, torch.as_tensor, 0.1)[:1]
    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        pyro_moments.propagate(program, *inputs, covariance=covariance)


def test_the_time_of_a_step_is_that_of_the_first_ones():
    """A query that followed every earlier step would pass the limit of recursion."""
    many = np.tile(X, (6, 1, 1))
    inputs = moments(pyro_moments, torch.as_tensor, 0.1)
    program = lambda *w: gru(torch, torch.sigmoid, torch.as_tensor(many), *w)  # noqa: E731
    found = pyro_moments.propagate(program, *inputs, covariance="backward")
    assert bool((found.variance > 0).all())
