"""Which latent sites the check of a loss draws: those before the last random map."""

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
]


@pytest.mark.parametrize(
    ("host", "predictor", "expected"),
    [("pyro", *row) for row in ROWS] + [("numpyro", two_heads, {"first"})],
    indirect=["host"],
)
def test_sites_before_the_last_random_map(host, predictor, expected):
    program, key = started_program(host, predictor)
    assert host.package.DeterministicELBO().sites_to_draw(*key, program) == expected


def started_program(host, predictor):
    """A model with its guide, as it starts, and a key if the host needs one."""
    fresh(host.name)

    def model(x, y=None):
        found = predictor(host, x)
        parameters = found if isinstance(found, tuple) else (found, 0.5)
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", host.dist.Normal(*parameters), obs=y)

    guide, data = host.package.DVIGuide(), (host.array(X), host.array(X[:, 0]))
    params = started(host, model, guide, *data)
    base = importlib.import_module(f"{host.package.__name__}.objectives.base")
    key = () if host.name == "pyro" else (jax.random.key(0),)
    return base.Program(model, guide, data, {}, *params), key


@pytest.mark.parametrize("predictor", [one_layer, empirical_bayes])
def test_divergences_of_drawn_sites_are_those_of_the_closed_form(host, predictor):
    """An empirical-Bayes prior has that of its best variance, no mean of log densities."""
    program, key = started_program(host, predictor)
    objective = host.package.DeterministicELBO()
    data, latent, _ = terms(objective.by_draws(3, ["first"]), *key, program)
    _, exact, _ = terms(objective, *key, program)
    assert np.ptp(data) > 0
    assert latent == pytest.approx(np.full(3, exact[0]), rel=1e-5)


def terms(objective, *arguments):
    """The terms of data and of latent sites of every particle, and their scale."""
    parts = objective.particle_terms(*arguments)
    parts = parts if len(parts) == 3 else parts[0]  # NumPyro's has mutable sites beside them
    return [np.asarray(part.detach() if hasattr(part, "detach") else part) for part in parts]
