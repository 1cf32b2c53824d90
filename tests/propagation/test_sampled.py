"""Draws have the expectation of the closed form; rows have noise of their own where that is so."""

import numpy as np
import pytest

from tests.propagation.oracle import losses, near

NOISE, ROWS, INPUTS, DRAWS = 0.6, 6, 3, 300
rng = np.random.default_rng(0)
X, SEQUENCES = rng.normal(size=(ROWS, INPUTS)), rng.normal(size=(ROWS, 4, INPUTS))
Y = rng.normal(size=ROWS)
PAIRS = np.array([1, 0, 3, 2, 5, 4])
ORDER = np.array([1, 0, 2, 3, 5, 4])
WEIGHT = np.array([0.4, -1.0, 0.7]), np.array([0.5, 0.3, 0.8])


def recurrent(x, weight):
    state = x[:, 0] @ weight
    for step in range(1, x.shape[1]):
        state = 0.5 * state + x[:, step] @ weight
    return state


def in_pairs(x, weight):
    rows = x @ weight
    return rows + rows[PAIRS]


# What the location is of the weight, all linear; whether rows may have noise of their own.
PROGRAMS = {
    "rows": (X, lambda x, w: x @ w, True),
    "a matrix": (X, lambda x, w: (x @ w.reshape(INPUTS, 1))[:, 0], True),
    "scaled rows": (X, lambda x, w: 2.0 * (x @ w) + x[:, 0], True),
    "one row": (X[:1], lambda x, w: x @ w, True),
    "pooled sequences": (SEQUENCES, lambda x, w: (x @ w).mean(1), False),
    "a recurrent network": (SEQUENCES, recurrent, False),
    "a weight that is used twice": (X, lambda x, w: x @ w + (x * x) @ w, False),
    "centred rows": (X, lambda x, w: x @ w - (x @ w).mean(), False),
    "rows in pairs": (X, in_pairs, False),
    "rows in another order": (X, lambda x, w: (x @ w)[ORDER], False),
    "one row for all": (X, lambda x, w: x[:, 0] + (x[:1] @ w), False),
}


def model_of(host, program):
    def model(x, y):
        weight = host.weight()
        host.observe(y, host.dist.Normal(program(x, weight), NOISE), y)

    return model


def moments_of(x, program):
    """Of the loss, where a location that is linear in the weight is drawn: its mean, and its
    variance with noise of their own for the rows or with one draw for all."""
    loc, scale = WEIGHT
    offset = program(x, np.zeros(INPUTS))
    columns = np.stack([program(x, unit) - offset for unit in np.eye(INPUTS)], -1)
    residual = offset + columns @ loc - Y[: len(x)]
    covariance = (columns * scale**2) @ columns.T
    log_density = -0.5 * np.log(2 * np.pi * NOISE**2) - residual**2 / NOISE**2 / 2
    divergence = 0.5 * (scale**2 + loc**2 - 1 - 2 * np.log(scale)).sum()
    mean = divergence - (log_density - np.diag(covariance) / NOISE**2 / 2).sum()
    return mean, *(_variance(residual, c) for c in (np.diag(np.diag(covariance)), covariance))


def _variance(residual, covariance):
    quadratic = residual @ covariance @ residual
    return (4 * quadratic + 2 * np.trace(covariance @ covariance)) / (4 * NOISE**4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_draws_have_the_mean_of_the_closed_form_and_the_least_variance_that_is_right(host, name):
    x, program, apart = PROGRAMS[name]
    elbo = host.package.DeterministicELBO(propagation="sampled")
    sites = {"weight": WEIGHT}
    found = losses(host, elbo, model_of(host, program), sites, x, Y[: len(x)], count=DRAWS)
    mean, by_rows, together = moments_of(x, program)
    assert near(found, mean)
    assert np.var(found) == pytest.approx(by_rows if apart else together, rel=0.35)


@pytest.mark.parametrize("name", ["rows", "pooled sequences"])
def test_many_particles_are_so_many_draws(host, name):
    x, program, apart = PROGRAMS[name]
    elbo = host.package.DeterministicELBO(propagation="sampled", num_particles=20)
    found = losses(host, elbo, model_of(host, program), {"weight": WEIGHT}, x, Y, count=DRAWS // 2)
    mean, by_rows, together = moments_of(x, program)
    assert near(found, mean)
    assert np.var(found) == pytest.approx((by_rows if apart else together) / 20, rel=0.4)
