"""Corrected moments and sensitivities of regressions, against refits by NumPy alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.response.models import HOSTS, doubles, fresh, generalised, response
from tests.response.oracle import NOISE, regression

KINDS = ["normal", "poisson", "bernoulli"]
STEP = 1e-4


@cache
def fitted(name, kind):
    host, known = fresh(name), regression(kind)
    found = response(
        host, generalised(host, known), known.x, known.y, sites={"weight": known.fitted()}
    )
    return host, known, found


@pytest.fixture(
    params=[*(("pyro", kind) for kind in KINDS), ("numpyro", "bernoulli")], ids="-".join
)
def case(request):
    return fitted(*request.param)


def close(found, expected, tolerance=1e-3):
    """Within a tolerance relative to the largest of each row."""
    expected = np.asarray(expected)
    scale = np.abs(expected).max(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(found) / scale, expected / scale, atol=tolerance)


def test_the_covariance_is_the_response_to_a_tilt(case):
    _, known, found = case
    close(found.covariance("weight"), known.changed("tilt", STEP), 1e-6)
    expected = np.asarray(found.covariance("weight"))
    np.testing.assert_allclose(found.covariance(), expected)
    np.testing.assert_allclose(
        np.asarray(found.standard_deviation("weight")) ** 2, np.diag(expected)
    )
    correlation = expected / np.sqrt(np.multiply.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(found.correlation("weight"), correlation)


def test_influences_are_the_response_to_weights(case):
    _, known, found = case
    expected = known.changed("weights", STEP)
    influence = np.asarray(found.influence("weight"))
    close(influence, expected, 1e-6)
    centred = expected - expected.mean(1, keepdims=True)
    close(found.standard_error("weight"), np.sqrt((centred**2).sum(1)), 1e-6)


def test_prior_sensitivities_are_the_response_to_their_parameters(case):
    _, known, found = case
    sensitivity = found.prior_sensitivity("weight")
    assert sensitivity.keys() == {"weight"}
    assert sensitivity["weight"].keys() == {"loc", "scale"}
    for parameter in ("loc", "scale"):
        expected = known.changed(f"prior_{parameter}", STEP)
        close(sensitivity["weight"][parameter], expected, 1e-6)


def test_moments_of_functions_and_deterministic_sites(case):
    _, known, found = case
    covariance = np.asarray(found.covariance("weight"))
    loc = known.fitted()[0]

    def product(sites):
        return sites["weight"][0] * sites["weight"][1]

    slope = np.array([loc[1], loc[0], 0.0])
    moments = found.moments(product)
    np.testing.assert_allclose(moments.mean, loc[0] * loc[1], rtol=1e-12)
    np.testing.assert_allclose(moments.variance, slope @ covariance @ slope, rtol=1e-9)
    close(found.influence(product), slope @ np.asarray(found.influence("weight")), 1e-9)
    twice = found.moments("twice")
    np.testing.assert_allclose(twice.covariance, 4 * covariance, rtol=1e-12)
    both = found.moments(lambda sites: {"one": product(sites), "other": sites["twice"]})
    np.testing.assert_allclose(both["one"].variance, moments.variance, rtol=1e-12)


def test_predictions_have_the_corrected_variance(case):
    host, known, found = case
    fresh_rows = np.random.default_rng(5).normal(size=(7, 3))
    with doubles(host):
        prediction = found.predict(host.array(fresh_rows))["obs"]
    covariance = np.asarray(found.covariance("weight"))
    variance = np.einsum("ij,jk,ik->i", fresh_rows, covariance, fresh_rows)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    points = (fresh_rows @ known.fitted()[0])[:, None] + np.sqrt(variance)[:, None] * nodes
    means = {
        "normal": lambda f: f,
        "poisson": np.exp,
        "bernoulli": lambda f: 1 / (1 + np.exp(-f)),
    }[known.kind](points)
    weights = weights / weights.sum()
    expected = means @ weights
    np.testing.assert_allclose(prediction.mean, expected, rtol=1e-6)
    spread = means**2 @ weights - expected**2
    np.testing.assert_allclose(prediction.epistemic_variance, spread, rtol=1e-5)
    if known.kind == "normal":
        np.testing.assert_allclose(prediction.variance, variance + NOISE**2, rtol=1e-10)


def test_the_posterior_of_a_linear_regression_is_exact():
    _, known, found = fitted("pyro", "normal")
    precision = known.x.T @ known.x / NOISE**2 + np.diag(known.prior_scale**-2)
    np.testing.assert_allclose(found.covariance(), np.linalg.inv(precision), rtol=1e-10)
    wider = np.asarray(found.standard_deviation("weight")) / known.fitted()[1]
    assert wider.max() > 2
    assert wider.min() > 1


def test_the_hosts_agree():
    one, other = (fitted(name, "bernoulli")[2] for name in HOSTS)
    np.testing.assert_allclose(one.covariance(), other.covariance(), rtol=1e-9)
    np.testing.assert_allclose(one.influence("weight"), other.influence("weight"), rtol=1e-7)
    for ends in zip(one.interval(0.8)["weight"], other.interval(0.8)["weight"], strict=True):
        np.testing.assert_allclose(*ends, rtol=1e-9)
