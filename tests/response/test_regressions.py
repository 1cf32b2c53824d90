"""Corrected moments and sensitivities of regressions, against refits by NumPy alone."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions
import pyro.distributions
import pytest
import torch

from moment_inference.response.data import count_masked
from tests.checks.marks import IN_PYRO
from tests.response.models import doubles, fresh, generalised, response
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
    means = {"normal": lambda f: f, "poisson": np.exp, "bernoulli": lambda f: 1 / (1 + np.exp(-f))}[
        known.kind
    ](points)
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


GROUPS, TRIALS, WIDTH = 12, 3, 3.0
Y = np.random.default_rng(2).normal(1.0, 1.0, size=(TRIALS, GROUPS))
WITHIN = 1 + NOISE**2 / TRIALS  # variance of a group's mean about the centre


def groups(host):
    """Effects of groups about a centre, each observed several times."""
    sample, plate, normal = host.language.sample, host.language.plate, host.dist.Normal

    def model(y):
        centre = sample("centre", normal(0.0, WIDTH))
        with plate("groups", y.shape[1], dim=-1):
            effect = sample("effect", normal(centre, 1.0))
            with plate("trials", y.shape[0], dim=-2):
                sample("obs", normal(effect, NOISE), obs=y)

    return model


def posterior_mean(weights):
    """Of the centre, where every group's marginal likelihood has a weight."""
    vjp = (weights * Y.mean(0)).sum() / WITHIN
    return vjp / (WIDTH**-2 + weights.sum() / WITHIN)


def optimum():
    """Location and scale of the sites by mean field."""
    centre = posterior_mean(np.ones(GROUPS))
    own = 1 + TRIALS / NOISE**2
    effect = (centre + Y.sum(0) / NOISE**2) / own
    scales = (WIDTH**-2 + GROUPS) ** -0.5, np.full(GROUPS, own**-0.5)
    return {"centre": (centre, scales[0]), "effect": (effect, scales[1])}


@IN_PYRO
def test_the_influence_of_a_group_is_that_of_all_that_belongs_to_it(host):
    found = response(host, groups(host), Y, sites=optimum())
    influence = np.asarray(found.influence("centre", datum="groups"))
    steps = 1e-5 * np.eye(GROUPS)
    ends = [[posterior_mean(1 + sign * step) for step in steps] for sign in (1, -1)]
    np.testing.assert_allclose(influence, (np.array(ends[0]) - ends[1]) / 2e-5, rtol=1e-6)
    errors = influence - influence.mean()
    error = found.standard_error("centre", datum="groups")
    np.testing.assert_allclose(error, np.sqrt((errors**2).sum()), rtol=1e-9)
    assert np.asarray(found.influence("centre")).shape == (TRIALS, GROUPS)


@IN_PYRO
def test_a_guide_of_one_vector_does_not_tell_what_a_datum_adds(host):
    names = {
        "numpyro": ("auto_loc", "auto_scale"),
        "pyro": ("AutoDiagonalNormal.loc", "AutoDiagonalNormal.scale"),
    }[host.name]
    sites = optimum()
    values = [np.r_[sites["centre"][part], sites["effect"][part]] for part in (0, 1)]
    with doubles(host):
        model = groups(host)
        params = dict(zip(names, map(host.array, values), strict=True))
        guide = host.autoguide.AutoDiagonalNormal(model)
        found = host.package.linear_response(model, guide, host.array(Y), params=params)
    with pytest.raises(ValueError, match=r"'effect' belongs to the data.*'groups'.*DVIGuide"):
        found.influence("centre", datum="groups")


ROWS, PARTS = np.array([True, False, True, True]), np.arange(12).reshape(4, 3) % 4 > 0
DISTRIBUTIONS = {
    "pyro": (pyro.distributions, torch.as_tensor),
    "numpyro": (numpyro.distributions, jnp.asarray),
}


@pytest.mark.parametrize("host", DISTRIBUTIONS)
def test_masks_count_at_every_depth(host):
    dist, array = DISTRIBUTIONS[host]
    normal = dist.Normal(array(np.zeros((4, 3))), 1.0)
    inside = normal.mask(array(PARTS)).to_event(1)
    assert count_masked(normal.to_event(1)) == 0
    assert count_masked(inside) == np.sum(~PARTS)
    assert count_masked(normal.to_event(1).mask(array(ROWS))) == 3 * np.sum(~ROWS)
    both = np.sum(~(PARTS & ROWS[:, None]))
    assert count_masked(inside.mask(array(ROWS))) == both
    assert count_masked(inside.expand([4]), array(ROWS)) == both
    assert count_masked(dist.Normal(0.0, 1.0).mask(array(ROWS)).expand([2, 4])) == 2
