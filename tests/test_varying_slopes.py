"""Intercepts and slopes of groups with a common correlation, and random covariances."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from moment_calculus.errors import UnsupportedMoments
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import started
from tests.propagation.oracle import divergence, expected, losses

GROUP = np.array([0, 0, 2, 1, 2])
X = np.array([-1.0, 0.5, 2.0, 1.0, 0.3])
Y = np.array([0.3, -0.2, 1.5, 0.1, 0.7])
FACTOR = np.array([[1.0, 0.0], [0.3, 0.8]])
LOC = np.array([[0.2, -0.5, 1.0], [0.4, 0.1, -0.3]])
SCALE = np.array([[0.3, 0.5, 0.2], [0.6, 0.1, 0.4]])
NOISE = 0.7


def transposed(array):
    """As both frameworks spell it."""
    return array.swapaxes(0, 1)


PREDICTORS = {
    "rows": lambda z, factor, g, x: (lambda v: v[0][g] + v[1][g] * x)(factor @ z),
    "entries": lambda z, factor, g, x: (lambda v: v[0, g] + v[1, g] * x)(factor @ z),
    "columns": lambda z, factor, g, x: (lambda v: v[:, 0][g] + v[:, 1][g] * x)(
        transposed(factor @ z)
    ),
    "entries of columns": lambda z, factor, g, x: (lambda v: v[g, 0] + v[g, 1] * x)(
        transposed(factor @ z)
    ),
    "transposed factors": lambda z, factor, g, x: (lambda v: v[g, 0] + v[g, 1] * x)(
        transposed(z) @ transposed(factor)
    ),
}


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.filterwarnings("error")
def test_standardised_effects_under_a_factor(host, name):
    def model(groups, x, y, factor):
        zeros = host.np.zeros((2, 3), dtype=factor.dtype)
        z = host.language.sample("z", host.dist.Normal(zeros, 1.0).to_event(2))
        with host.language.plate("data", len(Y)):
            mean = PREDICTORS[name](z, factor, groups, x)
            host.language.sample("y", host.dist.Normal(mean, NOISE), obs=y)

    sites = {"z": (LOC, SCALE)}
    objective = host.package.DeterministicELBO()
    loss = losses(host, objective, model, sites, GROUP, X, Y, FACTOR)[0]
    effects = np.stack([np.ones(len(X)), X], -1) @ FACTOR  # of both rows of z
    mean = (effects * LOC[:, GROUP].T).sum(-1)
    variance = (effects**2 * SCALE[:, GROUP].T ** 2).sum(-1)
    exact = divergence(LOC, SCALE) - expected(Y, mean, np.diag(variance), NOISE)
    np.testing.assert_allclose(loss, exact, rtol=1e-9)


def varying_slopes(host, centred):
    """Groups whose effects have random deviations and a random correlation."""
    dist, sample = host.dist, host.language.sample

    def model(groups, x, y):
        deviations = sample("deviations", dist.Exponential(1.0).expand([2]).to_event(1))
        factor = deviations[:, None] * sample("factor", dist.LKJCholesky(2, 2.0))
        if centred:
            with host.language.plate("groups", 3):
                effects = sample(
                    "effects", dist.MultivariateNormal(host.np.zeros(2), scale_tril=factor)
                )
        else:
            prior = dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2)
            effects = transposed(factor @ sample("effects", prior))
        with host.language.plate("data", len(Y)):
            mean = effects[:, 0][groups] + effects[:, 1][groups] * x
            sample("y", dist.Normal(mean, NOISE), obs=y)

    return model


def gaussian_process(host):
    """Values at the places of data, under a kernel with two random parameters."""
    dist, sample = host.dist, host.language.sample
    squares = host.array((X[:, None] - X).astype(np.float32) ** 2)

    def model(groups, x, y):
        height, rate = (sample(name, dist.Exponential(1.0)) for name in ("height", "rate"))
        kernel = height * host.np.exp(-rate * squares) + 0.1 * host.np.eye(len(X))
        values = sample("values", dist.MultivariateNormal(host.np.zeros(len(X)), kernel))
        with host.language.plate("data", len(Y)):
            sample("y", dist.Normal(values, NOISE), obs=y)

    return model


SLOPES = ["centred", "standardised"]
RANDOM = {
    "centred": (lambda host: varying_slopes(host, True), ["factor", "deviations"]),
    "standardised": (lambda host: varying_slopes(host, False), ["factor", "deviations"]),
    "process": (gaussian_process, ["height", "rate"]),
}


def trained(host, name, sites):
    """Losses of a few steps in Pyro; in NumPyro the first, and its derivatives."""
    data = [host.array(part) for part in (GROUP, X.astype(np.float32), Y.astype(np.float32))]
    objective = host.package.DeterministicELBO(sample_sites=sites)
    model, guide = RANDOM[name][0](host), host.package.DVIGuide()
    if host.name == "pyro":
        return host.fit(model, *data, objective=objective, steps=3).losses
    (params,) = started(host, model, guide, *data, objective=objective)
    loss = lambda params: objective.loss(jax.random.key(0), params, model, guide, *data)  # noqa: E731
    value, slopes = by_numpy(jax.value_and_grad(loss))(params)
    return ravel_pytree((value, slopes))[0]


@pytest.mark.parametrize("name", ["process", *(name for name in SLOPES)])
def test_random_covariances_are_drawn_where_they_are_named(host, name):
    assert np.isfinite(trained(host, name, RANDOM[name][1])).all()


def test_a_random_kernel_is_refused_as_a_covariance(host):
    refusal = r"covariance matrix(?s:.)*sample_sites=\['height', 'rate'\]"
    with pytest.raises(UnsupportedMoments, match=refusal):
        trained(host, "process", [])
