"""Moments of stochastic units in both frameworks, by quadrature and draws."""

import jax
import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from tests.response.models import HOSTS, doubles, fresh
from tests.units.cases import (
    CONTRASTS,
    GUMBEL,
    LOC,
    RANDOM,
    SCALE,
    SHARED,
    UNITS,
    Unit,
    X,
    array,
    exact,
    guide_of,
    model_of,
    predicted,
)

DRAWS = 300_000


@pytest.mark.parametrize("name", UNITS)
def test_units_behind_weights_are_exact(name, host):
    """Covariances between units come from a site that they share."""
    with doubles(host):
        found = predicted(host, UNITS[name], covariance="full")
    np.testing.assert_allclose(found[0], exact(UNITS[name])[0], atol=1e-7)
    np.testing.assert_allclose(found[1], exact(UNITS[name])[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli_logistic", "rectifier"])
def test_backward_covariance(name, host):
    """It takes the linear part of what units have in common."""
    found, (mean, variance) = (
        predicted(host, UNITS[name], covariance="backward"),
        exact(UNITS[name]),
    )
    np.testing.assert_allclose(found[0], mean, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(found[1], variance, rtol=0.02)


@pytest.mark.parametrize("name", ["bernoulli_logistic", "rectifier"])
def test_single_precision(name, host):
    found, (mean, variance) = predicted(host, UNITS[name]), exact(UNITS[name])
    np.testing.assert_allclose(found[0], mean, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(found[1], variance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli_probit", "rectifier"])
def test_certain_inputs(name, host):
    """Given its input a unit is still drawn: the variance of a Bernoulli unit is m (1 − m)."""
    unit = UNITS[name]
    inputs = X @ LOC["w"] + LOC["s"] * SHARED
    mean, second = unit.mean(inputs), unit.second(inputs)
    with doubles(host):
        found = predicted(host, unit, factor=1e-6)
    np.testing.assert_allclose(found[0], mean @ CONTRASTS, atol=1e-7)
    np.testing.assert_allclose(found[1], (second - mean**2) @ CONTRASTS**2, rtol=1e-6, atol=1e-9)


def test_a_drawn_class(host):
    """Its mean is that of the softmax, off by at most 0.015; given that, covariances are exact."""
    w, s = (
        LOC[name] + SCALE[name] * RANDOM.normal(size=(DRAWS, *LOC[name].shape)) for name in "ws"
    )
    logits = np.einsum("ni,kij->knj", X, w) + s[:, None, None] * SHARED
    places = (logits + RANDOM.gumbel(size=logits.shape)).argmax(-1)
    drawn = np.eye(4)[places].mean(0)  # [rows, classes]
    with doubles(host):
        mean, variance = predicted(host, GUMBEL, covariance="full")
    assert np.all(abs(mean[:, :4] - drawn) < 0.015 + 2 / DRAWS**0.5)
    np.testing.assert_allclose(variance, mean[:, :4] @ CONTRASTS**2 - mean**2, atol=1e-9)


def test_a_drawn_class_of_certain_logits(host):
    inputs = X @ LOC["w"] + LOC["s"] * SHARED
    shares = np.exp(inputs) / np.exp(inputs).sum(-1, keepdims=True)
    mean = shares @ CONTRASTS
    found = predicted(host, GUMBEL, factor=1e-6, covariance="full")
    np.testing.assert_allclose(found[0], mean, atol=1e-6)
    np.testing.assert_allclose(found[1], shares @ CONTRASTS**2 - mean**2, atol=1e-5)


@pytest.mark.parametrize("name", ["bernoulli_probit", "rectifier", "classes"])
def test_frameworks_agree(name):
    unit, found = {**UNITS, "classes": GUMBEL}[name], []
    for host in map(fresh, HOSTS):
        with doubles(host):
            found.append(predicted(host, unit, covariance="full"))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-10)


def test_a_function_of_a_unit_is_exact(host):
    """A unit takes two values, however far a function of it is from linear."""
    relu = Unit(lambda host, x: (UNITS["bernoulli_logistic"].draw(host, x) * 3 - 1).clip(0))
    found, (mean, variance) = predicted(host, relu), exact(UNITS["bernoulli_logistic"])
    np.testing.assert_allclose(found[0], 2 * mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], 4 * variance, rtol=1e-4)


def test_the_paper_s_rules(host):
    """By the logistic book: the mean is AP2b's, the variance m (1 − m)."""
    loc, scale = X @ LOC["w"] + LOC["s"] * SHARED, X**2 @ SCALE["w"] ** 2
    scale = scale + SCALE["s"] ** 2 * SHARED**2
    mean = 1 / (1 + np.exp(-loc / np.sqrt(1 + 3 * scale / np.pi**2)))
    options = {"rules": "logistic", "covariance": "diagonal"}
    found = predicted(host, UNITS["bernoulli_logistic"], **options)
    np.testing.assert_allclose(found[0][:, :4], mean, atol=1e-6)
    np.testing.assert_allclose(found[1][:, :4], mean * (1 - mean), rtol=1e-5)


def test_what_is_no_probability_is_refused(host):
    def draw(host, x):
        if host.name == "pyro":
            return torch.bernoulli(x)
        return jax.random.bernoulli(host.language.prng_key(), x) * 1.0

    given = ({},) if host.name == "numpyro" else ()
    program = model_of(host, Unit(draw)), guide_of(host), *given, array(host, X)
    with pytest.raises(UnsupportedMoments, match="mean is not between 0 and 1"):
        host.package.predict(*program)


@pytest.mark.parametrize("unit", ["stochastic_binary", "stochastic_rectifier"])
def test_other_noise_is_refused(unit, host):
    key = () if host.name == "pyro" else (None,)
    with pytest.raises(ValueError, match=f"noise of {unit} is a Normal .*, not a Gamma"):
        getattr(host.package.units, unit)(*key, host.array(X.copy()), host.dist.Gamma(1.0, 1.0))
