"""Posteriors that are Gaussian: linear response is exact, whatever the guide and the solver."""

from unittest.mock import patch

import numpy as np
import pytest

from moment_inference.response import inverse_curvature
from moment_inference.response.solvers import Arrow, ConjugateGradients
from tests.checks.marks import IN_PYRO
from tests.response.models import doubles, generalised, response
from tests.response.oracle import NOISE, regression

STEPS, MEMORY, INNOVATION = 6, 0.9, 0.7
GROUPS, WIDTH = 40, 2.0


def optimal(precision, vjp):
    """Location and scale of the mean-field posterior of a Gaussian."""
    return np.linalg.solve(precision, vjp), np.diag(precision) ** -0.5


def state_space(host):
    """A chain of states, one site each, observed with noise."""

    def model(y):
        state = 0.0
        for step in range(STEPS):
            state = host.language.sample(f"x{step}", host.dist.Normal(MEMORY * state, INNOVATION))
            host.language.sample(f"y{step}", host.dist.Normal(state, NOISE), obs=y[step])

    return model


@IN_PYRO
def test_a_state_space_model_is_exact(host):
    y = np.random.default_rng(0).normal(size=STEPS)
    ahead = np.eye(STEPS) - MEMORY * np.eye(STEPS, k=-1)
    precision = ahead.T @ ahead / INNOVATION**2 + np.eye(STEPS) / NOISE**2
    loc, scale = optimal(precision, y / NOISE**2)
    sites = {f"x{step}": (loc[step], scale[step]) for step in range(STEPS)}
    found = response(host, state_space(host), y, sites=sites)
    exact = np.linalg.inv(precision)
    np.testing.assert_allclose(found.covariance(), exact, atol=1e-10)
    np.testing.assert_allclose(found.covariance("x1", "x4"), exact[1, 4], atol=1e-10)
    np.testing.assert_allclose(found.correlation("x1", "x1"), 1)
    assert found.sites == {f"x{step}": () for step in range(STEPS)}


def hierarchical(host):
    """Groups with effects of their own around a common mean."""

    def model(y):
        centre = host.language.sample("centre", host.dist.Normal(0.0, WIDTH))
        with host.language.plate("groups", len(y)):
            effect = host.language.sample("effect", host.dist.Normal(centre, INNOVATION))
            host.language.sample("obs", host.dist.Normal(effect, NOISE), obs=y)

    return model


def hierarchy():
    """Outcomes, mean-field sites and exact covariance, the centre first."""
    y = np.random.default_rng(1).normal(size=GROUPS)
    precision = np.diag(
        np.r_[WIDTH**-2 + GROUPS / INNOVATION**2, np.full(GROUPS, INNOVATION**-2 + NOISE**-2)]
    )
    precision[0, 1:] = precision[1:, 0] = -(INNOVATION**-2)
    loc, scale = optimal(precision, np.r_[0.0, y / NOISE**2])
    sites = {"centre": (loc[0], scale[0]), "effect": (loc[1:], scale[1:])}
    return y, sites, np.linalg.inv(precision)


def test_an_arrow_of_local_latents_is_exact(host):
    y, sites, exact = hierarchy()
    found = response(host, hierarchical(host), y, sites=sites)
    assert type(found._curvature.inverse) is Arrow
    deviations = np.sqrt(np.diag(exact))
    np.testing.assert_allclose(found.standard_deviation("centre"), deviations[0], rtol=1e-8)
    np.testing.assert_allclose(found.standard_deviation("effect"), deviations[1:], rtol=1e-8)
    np.testing.assert_allclose(found.covariance(), exact, atol=1e-9)
    np.testing.assert_allclose(found.covariance("effect", "centre"), exact[1:, 0], atol=1e-9)
    predicted = found.predict()["obs"]
    np.testing.assert_allclose(predicted.epistemic_variance, deviations[1:] ** 2, rtol=1e-8)
    influence = np.asarray(found.influence("centre"))
    errors = (y - sites["centre"][0]) / (INNOVATION**2 + NOISE**2)  # an effect is of its datum
    np.testing.assert_allclose(influence, exact[0, 0] * errors, atol=1e-9)


@pytest.mark.parametrize("kind", ["products", "dense"])
@IN_PYRO
def test_other_solvers_agree_with_the_arrow(host, kind):
    y, sites, exact = hierarchy()
    few = {"products": 1, "dense": 3000}[kind]
    with (
        patch.object(inverse_curvature, "DENSE", few),
        patch.object(inverse_curvature, "WORTH", 100),
    ):
        found = response(host, hierarchical(host), y, sites=sites)
    assert (type(found._curvature.inverse) is ConjugateGradients) == (kind == "products")
    deviations = np.sqrt(np.diag(exact))
    np.testing.assert_allclose(found.standard_deviation("centre"), deviations[0], rtol=1e-6)
    np.testing.assert_allclose(found.standard_deviation("effect"), deviations[1:], rtol=1e-6)


NAMES = {
    ("numpyro", "AutoNormal"): ("weight_auto_loc", "weight_auto_scale"),
    ("numpyro", "AutoDiagonalNormal"): ("auto_loc", "auto_scale"),
    ("pyro", "AutoNormal"): ("AutoNormal.locs.weight", "AutoNormal.scales.weight"),
    ("pyro", "AutoDiagonalNormal"): ("AutoDiagonalNormal.loc", "AutoDiagonalNormal.scale"),
    ("pyro", "AutoDelta"): ("AutoDelta.weight", None),
}
FULL_RANK = {
    "numpyro": ("auto_loc", None, "auto_scale_tril"),
    "pyro": tuple(f"AutoMultivariateNormal.{part}" for part in ("loc", "scale", "scale_tril")),
}


@pytest.mark.parametrize(("host", "guide"), NAMES, indirect=["host"])
def test_guides_of_the_host_are_exact(host, guide):
    known = regression("normal")
    names = NAMES[host.name, guide]
    values = [part for part, name in zip(known.fitted(), names, strict=True) if name]
    params = dict(zip(filter(None, names), values, strict=True))
    assert_exact(host, known, guide, params)


def test_a_full_rank_guide_has_nothing_to_correct(host):
    known = regression("normal")
    exact = np.linalg.inv(known.x.T @ known.x / NOISE**2 + np.diag(known.prior_scale**-2))
    lower = np.linalg.cholesky(exact)
    diagonal = np.diag(lower)
    parts = [known.fitted()[0], diagonal, lower / diagonal[:, None]]
    if host.name == "numpyro":
        parts = [parts[0], None, lower]
    named = zip(FULL_RANK[host.name], parts, strict=True)
    assert_exact(
        host, known, "AutoMultivariateNormal", {name: part for name, part in named if name}
    )


def assert_exact(host, known, guide, params):
    """Linear response of a guide of the host is the exact posterior covariance."""
    model = generalised(host, known)
    with doubles(host):
        arrays = {name: host.array(part) for name, part in params.items()}
        data = host.array(known.x), host.array(known.y)
        made = getattr(host.autoguide, guide)(model)
        found = host.package.linear_response(model, made, *data, params=arrays)
    exact = np.linalg.inv(known.x.T @ known.x / NOISE**2 + np.diag(known.prior_scale**-2))
    np.testing.assert_allclose(found.covariance("weight"), exact, rtol=1e-8)
    np.testing.assert_allclose(found.location("weight"), known.fitted()[0], rtol=1e-8)


@IN_PYRO
def test_draws_are_of_the_corrected_posterior(host):
    y, sites, exact = hierarchy()
    found = response(host, hierarchical(host), y, sites=sites)
    count = 3000
    with doubles(host):
        draws = found.sample(count)
    together = np.column_stack([np.asarray(draws["centre"]), np.asarray(draws["effect"])])
    assert together.shape == (count, 1 + GROUPS)
    units = np.sqrt(np.diag(exact))
    errors = (np.cov(together.T) - exact) / np.multiply.outer(units, units)
    assert np.abs(errors).max() < 6 * np.sqrt(2 / count)
    means = together.mean(0) - np.r_[sites["centre"][0], sites["effect"][0]]
    assert np.abs(means / units).max() < 5 / np.sqrt(count)
