"""Models of both frameworks for mistakes, their data, and shared fits."""

import functools
from typing import Any, NamedTuple

import numpy as np

from tests.fitting.models import HOSTS, X, Y

ROWS = 20
IN, OUT = X[:ROWS], Y[:ROWS]
COUNTS, LABELS = np.arange(ROWS) % 4, np.arange(ROWS) % 3
QUICK = {"method": "newton", "by_draws": False}


class Mistake(NamedTuple):
    """A call that cannot work, and what the first sentence of its message says."""

    call: Any  # of a framework
    cause: str
    remedy: str


def changed(array, place, value):
    """A copy of an array with another value at a place."""
    array = np.array(array)
    array[place] = value
    return array


def of(family):
    """A model of rows, whose observations have a family of the linear predictor."""

    def made(host):
        def model(x, y=None):
            weight = host.weight()
            return host.observe(x, family(host, x @ weight), y)

        return model

    return made


counts = of(lambda host, eta: host.dist.Poisson(host.np.exp(0.1 * eta)))
binary = of(lambda host, eta: host.dist.Bernoulli(logits=eta))
trials = of(lambda host, eta: host.dist.Binomial(4, logits=eta))
proportions = of(lambda host, eta: host.dist.Beta(host.np.exp(0.1 * eta), host.np.exp(-0.1 * eta)))
positive = of(lambda host, eta: host.dist.LogNormal(eta, 1.0))
column = of(lambda host, eta: host.dist.Normal(eta[:, None], 1.0))


def classes(host):
    """A softmax regression of three classes."""

    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([x.shape[1], 3]).to_event(2)
        weight = host.language.sample("weight", prior)
        return host.observe(x, host.dist.Categorical(logits=x @ weight), y)

    return model


def other(host):
    """A model with another latent site."""

    def model(x, y=None):
        slope = host.language.sample("slope", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        return host.observe(x, host.dist.Normal(x @ slope, 0.3), y)

    return model


def by_row(host):
    """A regression with an effect in every row."""

    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", len(x)):
            effect = host.language.sample("effect", host.dist.Normal(0.0, 1.0))
            return host.language.sample("obs", host.dist.Normal(x @ weight + effect, 1.0), obs=y)

    return model


def vector_by_row(host):
    """The same with the effects as a vector."""

    def model(x, y=None):
        weight = host.weight()
        prior = host.dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1)
        mean = x @ weight + host.language.sample("effect", prior)
        return host.observe(x, host.dist.Normal(mean, 1.0), y)

    return model


def grouped(host):
    """A mean for each of four groups."""

    def model(group, y=None):
        with host.language.plate("groups", 4):
            mean = host.language.sample("mean", host.dist.Normal(0.0, 1.0))
        return host.observe(group, host.dist.Normal(mean[group], 1.0), y)

    return model


def random_scale(host):
    """A regression whose noise has a prior."""

    def model(x, y=None):
        mean = x @ host.weight()
        scale = host.language.sample("scale", host.dist.HalfNormal(1.0))
        return host.observe(x, host.dist.Normal(mean, scale), y)

    return model


def without_default(host):
    """A regression that cannot be called without observations."""

    def model(x, y):
        return host.regression(x, y)

    return model


def enumerated(host):
    """A mixture of two kinds of rows."""

    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", len(x)):
            parallel = {"enumerate": "parallel"}
            kind = host.language.sample("kind", host.dist.Bernoulli(0.5), infer=parallel)
            return host.language.sample("obs", host.dist.Normal(x @ weight + kind, 1.0), obs=y)

    return model


def by_name(host):
    """A regression whose covariates are arguments, as columns of a frame are."""

    def model(a, b, c, y=None):
        weight = host.weight()
        mean = a * weight[0] + b * weight[1] + c * weight[2]
        return host.observe(a, host.dist.Normal(mean, 0.3), y)

    return model


def masked(host, family=None):
    """A regression in which a mask hides some rows."""
    family = family or (lambda eta: host.dist.Normal(eta, 1.0))

    def model(x, y=None, seen=None):
        weight = host.weight()
        with host.language.plate("data", len(x)), host.handlers.mask(mask=seen):
            return host.language.sample("obs", family(x @ weight), obs=y)

    return model


def fitted(host, model, *data, **options):
    """A fit of arrays of the framework."""
    arrays = [host.array(part) if isinstance(part, np.ndarray) else part for part in data]
    return host.package.fit(model, host.package.DVIGuide(), *arrays, **{**QUICK, **options})


@functools.cache
def trained(name):
    """A fit of the regression in a framework."""
    host = HOSTS[name]
    return fitted(host, host.regression, IN, OUT)


def data(host):
    """Inputs and observations in arrays of the framework."""
    return host.array(IN), host.array(OUT)
