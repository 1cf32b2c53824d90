"""Mixtures with random weights and components: a bound by classes of their own."""

import numpy as np
import pytest
from scipy import special, stats

from tests.propagation.oracle import losses

OBSERVATIONS = np.array([-1.5, 0.2, 2.0], np.float32), np.array([0.0, 0.4, -0.3], np.float32)
LOC, SCALE = np.array([-0.5, 1.0]), np.array([0.2, 0.4])
SITES = {"g": (0.3, 0.5), "loc": (LOC, SCALE), "log_scale": (-0.2, 0.3)}


def outliers(host):
    """The second component is three times as wide."""

    def model(y):
        sample, dist, np = host.language.sample, host.dist, host.np
        f = 1 / (1 + np.exp(-sample("g", dist.Normal(0.0, 1.0))))
        loc = sample("loc", dist.Normal(np.zeros(2), 1.0).to_event(1))
        scale = np.exp(sample("log_scale", dist.Normal(0.0, 1.0)))
        parts = dist.Normal(loc, np.stack([scale, 3 * scale]))
        shares = dist.Categorical(probs=np.stack([1 - f, f]))
        with host.language.plate("data", 3):
            sample("y", dist.MixtureSameFamily(shares, parts), obs=y)

    return model


def expected_log_likelihood(y):
    """The sum of log Σ exp(E log w + E log p) over observations."""
    z, weights = np.polynomial.hermite_e.hermegauss(40)
    g, weights = 0.3 + 0.5 * z, weights / weights.sum()
    shares = [weights @ special.log_expit(sign * g) for sign in (-1, 1)]
    second = np.exp(2 * 0.2 + 2 * 0.3**2) / np.array([1.0, 9.0])  # E of 1 / scale²
    squares = (y[:, None] - LOC) ** 2 + SCALE**2
    logs = -0.5 * squares * second - 0.5 * np.log(2 * np.pi) + 0.2 - np.log([1.0, 3.0])
    return special.logsumexp(logs + shares, axis=-1).sum()


def test_a_mixture_has_the_bound_of_hidden_classes(host):
    objective = host.package.DeterministicELBO()
    first, second = (losses(host, objective, outliers(host), SITES, y)[0] for y in OBSERVATIONS)
    expected = [-expected_log_likelihood(y) for y in OBSERVATIONS]
    assert first - second == pytest.approx(expected[0] - expected[1], rel=1e-4)


def test_components_of_vectors_are_as_their_independent_elements(host):
    """Two columns of the same observations count twice."""

    def model(y):
        sample, dist = host.language.sample, host.dist
        loc = sample("loc", dist.Normal(host.np.zeros(2), 1.0).to_event(1))
        wide = host.np.stack([loc] * y.shape[-1], -1)
        shares = dist.Categorical(logits=host.np.zeros(2))
        with host.language.plate("data", 3):
            parts = dist.Normal(wide, 0.7).to_event(1)
            sample("y", dist.MixtureSameFamily(shares, parts), obs=y)

    objective, sites = host.package.DeterministicELBO(), {"loc": (LOC, SCALE)}
    y = OBSERVATIONS[0][:, None]
    once, twice = (losses(host, objective, model, sites, np.tile(y, (1, n)))[0] for n in (1, 2))
    squares = (y - LOC) ** 2 + SCALE**2
    logs = -0.5 * squares / 0.49 - 0.5 * np.log(2 * np.pi * 0.49)
    change = special.logsumexp(logs, axis=-1) - special.logsumexp(2 * logs, axis=-1)
    assert twice - once == pytest.approx(change.sum(), rel=1e-4)


def test_the_logarithm_of_a_simplex_has_moments(host):
    """Those of a linear function of it, by a million draws of its sticks."""

    def model(y):
        p = host.language.sample("p", host.dist.Dirichlet(host.np.ones(3)))
        logs = host.np.log(p)
        host.language.sample("y", host.dist.Normal(logs[0] - 2 * logs[2], 1.0), obs=y)

    near, far = (
        losses(host, host.package.DeterministicELBO(), model, {"p": (np.zeros(2), np.ones(2))}, y)[
            0
        ]
        for y in np.float32([0.0, 1.0])
    )
    free = stats.norm.rvs(size=(10**6, 2), random_state=0) - np.log([2.0, 1.0])
    stick = special.log_expit(free)
    rest = np.cumsum(special.log_expit(-free), axis=-1)
    mean = (stick[:, 0] - 2 * rest[:, 1]).mean()
    assert far - near == pytest.approx(0.5 - mean, abs=1e-2)
