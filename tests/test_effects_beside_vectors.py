"""Effects of a plate beside a vector site: nothing is dropped of what each datum needs alone."""

from __future__ import annotations

import warnings
from functools import partial

import jax
import numpy as np
import pytest

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models
from tests.checks.jaxprs import by_numpy

POINTS, GROUPS, COLUMNS, KINDS = 60, 7, 3, 4


def in_pyro(model):
    guide = partial(own_guide, models.PYRO)
    return pyro_moments.DeterministicELBO().loss(partial(model, models.PYRO), guide)


def in_numpyro(model):
    programs = partial(model, models.NUMPYRO), partial(own_guide, models.NUMPYRO)
    loss = partial(numpyro_moments.DeterministicELBO().loss, jax.random.key(0), {}, *programs)
    with jax.enable_x64(True):
        return float(by_numpy(loss)())


LOSSES = {"pyro": in_pyro, "numpyro": in_numpyro}
random = np.random.default_rng(0)
GROUP, COLUMN, KIND = (random.integers(0, n, POINTS) for n in (GROUPS, COLUMNS, KINDS))
Y = random.integers(0, 2, POINTS) * 1.0
POSTERIOR = {
    name: (random.normal(size=shape), random.uniform(0.2, 0.6, size=shape))
    for name, shape in {"m": (), "a": GROUPS, "c": (GROUPS, COLUMNS), "b": KINDS}.items()
}


def sites(host, posterior):
    """Those of the model, or of its guide: scalars of a plate, of two plates, and a vector."""

    def draw(name):
        loc, scale = posterior[name] if posterior else np.broadcast_arrays(0.0, 1.0)
        return host.dist.Normal(host.np.asarray(loc), host.np.asarray(scale))

    m = host.sample("m", draw("m"))
    b = host.sample("b", draw("b").expand([KINDS]).to_event(1))
    with host.plate("columns", COLUMNS), host.plate("groups of columns", GROUPS):
        c = host.sample("c", draw("c"))
    with host.plate("groups", GROUPS):
        a = host.sample("a", draw("a"))
    return m, a, c, b


def own_guide(host):
    sites(host, POSTERIOR)


PREDICTORS = {
    "a plate": (lambda m, a, c, b: a[GROUP] + b[KIND], "a b"),
    "the vector first": (lambda m, a, c, b: b[KIND] + a[GROUP], "a b"),
    "two plates": (lambda m, a, c, b: c[GROUP, COLUMN] + b[KIND], "c b"),
    "around a mean": (lambda m, a, c, b: (m + a)[GROUP] + b[KIND], "m a b"),
    "two plates around a mean": (lambda m, a, c, b: (m + c)[GROUP, COLUMN] + b[KIND], "m c b"),
}


@pytest.mark.parametrize("host", LOSSES)
@pytest.mark.parametrize("name", PREDICTORS)
def test_the_elbo_is_exact_without_a_warning(name, host, double_precision):
    predictor, terms = PREDICTORS[name]

    def model(host):
        logits = predictor(*sites(host, None))
        with host.plate("data", POINTS):
            host.sample("y", host.dist.Bernoulli(logits=logits), obs=host.np.asarray(Y))

    with warnings.catch_warnings():
        warnings.simplefilter("error", pyro_moments.CovarianceDroppedWarning)
        loss = LOSSES[host](model)
    assert loss == pytest.approx(by_quadrature(terms.split()), rel=1e-9)


def by_quadrature(terms):
    """The logit of each datum is a sum of independent Gaussians."""
    keys = {"m": (), "a": GROUP, "c": (GROUP, COLUMN), "b": KIND}
    mean = sum(POSTERIOR[term][0][keys[term]] for term in terms)
    variance = sum(POSTERIOR[term][1][keys[term]] ** 2 for term in terms)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    logits = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    energy = (Y[:, None] * logits - np.logaddexp(0, logits)) @ weights / weights.sum()
    divergence = sum(
        np.sum((loc**2 + scale**2 - 1) / 2 - np.log(scale)) for loc, scale in POSTERIOR.values()
    )
    return divergence - energy.sum()


@pytest.mark.parametrize("host", LOSSES)
def test_a_covariance_that_a_reshape_drops_is_warned_of(host):
    """Units of one layer are dependent, and so is a sum of them that a later layer would take."""

    def model(host):
        _, a, c, b = sites(host, None)
        units = host.np.tanh(c * a[:, None])
        with host.plate("data", GROUPS * COLUMNS):
            logits = units.reshape(-1) + b[KIND[: GROUPS * COLUMNS]]
            host.sample("y", host.dist.Bernoulli(logits=logits), obs=host.np.zeros(21))

    with pytest.warns(pyro_moments.CovarianceDroppedWarning):
        LOSSES[host](model)
