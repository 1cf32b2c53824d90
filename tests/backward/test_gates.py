"""Products of values that depend on each other in an unknown way: gates of recurrent cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.errors import DependenceWarning, UnsupportedMoments
from tests.backward import dependent

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


@pytest.mark.parametrize("cell", CELLS)
def test_small_variances(cell):
    with pytest.warns(DependenceWarning, match="left out of its mean"):
        found = dependent.propagated(in_torch(cell), WEIGHTS, 1e-5)
    dependent.check_small_variances(in_torch(cell), WEIGHTS, found)


@pytest.mark.parametrize(
    ("cell", "scale", "spread", "off"),
    [(lstm, 0.1, 0.02, 0.03), (lstm, 0.3, 0.08, 0.06), (gru, 0.1, 0.02, 0.04)],
)
def test_the_deviations_of_draws(cell, scale, spread, off):
    dependent.check_deviations(in_torch(cell), WEIGHTS, scale, spread, off)


@pytest.mark.parametrize("cell", CELLS)
def test_hosts_agree_with_gradients(cell):
    in_jax = lambda *w: cell(jnp, jax.nn.sigmoid, jnp.asarray(X[:2]), *w)  # noqa: E731
    dependent.check_hosts(in_torch(cell, 2), in_jax, WEIGHTS)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_other_covariances_name_backward_as_the_remedy(covariance):
    def program(weight):
        hidden = torch.tanh(torch.as_tensor(X[0]) @ weight)
        return torch.sigmoid(hidden @ hidden.mT) * hidden[:, :3]

    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        dependent.propagated(in_torch(lstm, 2), WEIGHTS, 0.1, covariance)
    with pytest.raises(UnsupportedMoments, match="covariance='backward'"):
        dependent.propagated(program, WEIGHTS[:1], 0.1, covariance)


def test_the_time_of_a_step_is_that_of_the_first_ones():
    """A query that followed every earlier step would pass the limit of recursion."""
    many = np.tile(X, (6, 1, 1))
    program = lambda *w: gru(torch, torch.sigmoid, torch.as_tensor(many), *w)  # noqa: E731
    found = dependent.propagated(program, WEIGHTS, 0.1)
    assert bool((found.variance > 0).all())
