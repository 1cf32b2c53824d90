"""Which latent sites the check of a loss draws: those before the last random map."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

from tests.fitting.models import fresh, started

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def weight(host, name, *shape):
    prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
    return host.language.sample(name, prior)


def hidden(host, x):
    return host.np.tanh(x @ weight(host, "first", 3, 4))


def regression(host, x):
    return x @ weight(host, "slope", 3)


def one_layer(host, x):
    return hidden(host, x) @ weight(host, "last", 4) + weight(host, "bias")


def two_layers(host, x):
    inner = host.np.tanh(hidden(host, x) @ weight(host, "second", 4, 4))
    return (inner @ weight(host, "last", 4, 2)).sum(-1)


def two_heads(host, x):
    out = hidden(host, x) @ weight(host, "last", 4, 2)
    return out[:, 0], host.np.exp(0.5 * out[:, 1])


def residual(host, x):
    inner = hidden(host, x)
    return (inner + host.np.tanh(inner @ weight(host, "second", 4, 4)))[:, 0]


def not_centred(host, x):
    scale = host.language.sample("scale", host.dist.HalfNormal(1.0))
    return scale * (x @ weight(host, "slope", 3))


def function_of_all(host, x):
    return host.np.exp(0.1 * (x @ weight(host, "slope", 3)))


def empirical_bayes(host, x):
    """Its divergence is no mean of log densities, which draws of the weights would have."""
    first = host.language.sample("first", host.package.EmpiricalBayesNormal([3, 4]))
    return host.np.tanh(x @ first) @ weight(host, "last", 4)


ROWS = [
    (regression, set()),
    (one_layer, {"first"}),
    (two_layers, {"first", "second"}),
    (two_heads, {"first"}),
    (residual, set()),  # nothing is left to a closed form
    (not_centred, {"scale"}),
    (function_of_all, set()),
    (empirical_bayes, set()),
]


@pytest.mark.parametrize(
    ("host", "predictor", "expected"),
    [("pyro", *row) for row in ROWS]
    + [("numpyro", two_heads, {"first"}), ("numpyro", empirical_bayes, set())],
    indirect=["host"],
)
def test_sites_before_the_last_random_map(host, predictor, expected):
    fresh(host.name)

    def model(x, y=None):
        found = predictor(host, x)
        parameters = found if isinstance(found, tuple) else (found, 0.5)
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", host.dist.Normal(*parameters), obs=y)

    guide, data = host.package.DVIGuide(), (host.array(X), host.array(X[:, 0]))
    params = started(host, model, guide, *data)
    base = importlib.import_module(f"{host.package.__name__}.objectives.base")
    program = base.Program(model, guide, data, {}, *params)
    key = () if host.name == "pyro" else (jax.random.key(0),)
    assert host.package.DeterministicELBO().sites_to_draw(*key, program) == expected
