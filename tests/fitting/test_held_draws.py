"""Fits with held draws for what has no moment rule, beside a posterior by quadrature."""

import functools

import numpy as np
import numpyro
import pyro
import pytest
import torch
from scipy.stats import norm, poisson

import numpyro_moments
import pyro_moments
from moment_calculus import UnsupportedMoments
from moment_guides.numpyro.gaussian import GaussianGuide as InNumPyro
from moment_guides.pyro.gaussian import GaussianGuide as InPyro
from moment_inference.objectives import held_draws
from tests.cases.hosts import models

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=40)
Y = 0.2 + 1.1 * X + np.where(np.arange(40) % 6, 0.5, 3.0) * RANDOM.normal(size=40)
COUNTS = np.where(RANDOM.uniform(size=40) < 0.3, 0, RANDOM.poisson(np.exp(0.5 + 0.4 * X)))
QUIET = {"by_draws": False, "progress_bar": False, "method": "newton"}
HELD = {**QUIET, "unsupported": "held draws"}
FACTORS = {"pyro": pyro.factor, "numpyro": numpyro.factor}


def outliers(host, factor, x, y):
    """A line, with rows that are off it by much."""
    share = host.sample("share", host.dist.Beta(2.0, 2.0))
    a = host.sample("a", host.dist.Normal(0.0, 2.0))
    b = host.sample("b", host.dist.Normal(0.0, 2.0))
    near, far = (host.np.exp(host.dist.Normal(a + b * x, s).log_prob(y)) for s in (0.5, 3.0))
    factor("y", host.np.log(share * far + (1 - share) * near).sum())


def inflated(host, factor, x, y):
    """Counts, some of which are zero for another reason."""
    share = host.sample("share", host.dist.Beta(2.0, 2.0))
    a = host.sample("a", host.dist.Normal(0.0, 1.0))
    b = host.sample("b", host.dist.Normal(0.0, 1.0))
    counts = host.dist.Poisson(host.np.exp(a + b * x)).log_prob(y)
    factor("y", host.np.log(share * (y == 0) + (1 - share) * host.np.exp(counts)).sum())


def in_host(name, model):
    host = models.PYRO if name == "pyro" else models.NUMPYRO
    return lambda x, y: model(host, FACTORS[name], x, y)


HOSTS = {
    "pyro": (pyro_moments, InPyro, torch.tensor),
    "numpyro": (numpyro_moments, InNumPyro, np.asarray),
}


@functools.cache
def fitted_once(name, model):
    return fitted(name, model, DATA[model])


def fitted(name, model, y, guide=None, **options):
    host, joint, array = HOSTS[name]
    data = array(X), array(y.astype(float))
    model = in_host(name, model)
    return host, model, data, host.fit(model, guide or joint(), *data, **{**HELD, **options})


def by_quadrature(model):
    """Means and standard deviations of the unconstrained coordinates, on a grid."""
    first, second, third = (np.linspace(*ends, 41) for ends in GRIDS[model])
    u, a, b = np.meshgrid(first, second, third, indexing="ij")
    log_density = DENSITIES[model](u, a, b)
    weights = np.exp(log_density - log_density.max())
    points = np.stack([u, a, b])
    means = (points * weights).sum((1, 2, 3)) / weights.sum()
    variances = (points**2 * weights).sum((1, 2, 3)) / weights.sum() - means**2
    return means, np.sqrt(variances)


def outliers_density(u, a, b):
    """Log density of the logit of the share, and of the line."""
    share = 1 / (1 + np.exp(-u))
    result = norm.logpdf(a, 0, 2) + norm.logpdf(b, 0, 2) + 2 * np.log(share * (1 - share))
    for x, y in zip(X, Y, strict=True):
        near, far = (norm.pdf(y, a + b * x, s) for s in (0.5, 3.0))
        result = result + np.log(share * far + (1 - share) * near)
    return result


def inflated_density(u, a, b):
    """Log density of the logit of the share, and of the line."""
    share = 1 / (1 + np.exp(-u))
    result = norm.logpdf(a) + norm.logpdf(b) + 2 * np.log(share * (1 - share))
    for x, y in zip(X, COUNTS, strict=True):
        counts = poisson.pmf(y, np.exp(a + b * x))
        result = result + np.log(share * (y == 0) + (1 - share) * counts)
    return result


DENSITIES = {outliers: outliers_density, inflated: inflated_density}
GRIDS = {
    outliers: [(-5.0, 2.0), (-1.0, 1.4), (0.0, 2.2)],
    inflated: [(-6.0, 1.5), (-0.5, 1.4), (-0.3, 1.0)],
}
DATA = {outliers: Y, inflated: COUNTS}


def responding(name, model, fit):
    host, _, array = HOSTS[name]
    return host.linear_response(
        in_host(name, model), fit, array(X), array(DATA[model].astype(float))
    )


def moments(name, model, fit):
    """Means and corrected standard deviations of the unconstrained coordinates."""
    response = responding(name, model, fit)
    sites = ["share", "a", "b"]
    return [
        np.asarray([float(of(site)) for site in sites])
        for of in (response.location, response.standard_deviation)
    ]


CASES = [("pyro", outliers), ("pyro", inflated), ("numpyro", inflated)]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_posteriors_are_those_of_quadrature_and_alike_in_both_hosts(name, model):
    fit = fitted_once(name, model)[-1]
    assert fit.converged
    assert fit.held.sites == ("y",)
    assert fit.held.error < 0.1
    assert "256 held draws for y" in str(fit)
    assert fit.loss == pytest.approx(fitted_once("pyro", model)[-1].loss, abs=1e-6)
    (means, sds), (mean, sd) = by_quadrature(model), moments(name, model, fit)
    assert np.abs((mean - means) / sds).max() < 0.15
    assert np.abs(sd / sds - 1).max() < 0.1


@pytest.mark.parametrize("name", HOSTS)
def test_without_the_option_the_refusal_stays_and_names_it(name):
    with pytest.raises(UnsupportedMoments, match="remedy: integrate what has no rule by draws"):
        fitted(name, inflated, COUNTS, unsupported=None)


def line(host, *_):
    """A model in closed form."""
    a = host.sample("a", host.dist.Normal(0.0, 1.0))
    with host.plate("data", 3):
        host.sample("y", host.dist.Normal(a, 1.0), obs=host.np.ones(3))


@pytest.mark.parametrize("name", HOSTS)
def test_what_has_rules_stays_closed(name):
    host, joint, _ = HOSTS[name]
    model, options = in_host(name, line), {**QUIET, "method": "adam", "steps": 3}
    fit = host.fit(model, joint(), X, Y, **options, unsupported="held draws")
    assert fit.held is None
    assert "held" not in str(fit)
    assert fit.objective.held_draws == 0
    assert fit.loss == host.fit(model, joint(), X, Y, **options).loss


@pytest.mark.parametrize("name", HOSTS)
def test_files_hold_the_number_of_draws(name, tmp_path):
    host, model, data, fit = fitted_once(name, inflated)
    host.save(tmp_path / "fit", model, fit)
    loaded = host.load(tmp_path / "fit", model, HOSTS[name][1](), *data)
    assert loaded.objective.held_draws == 256


def test_a_joint_guide_gets_more_draws_than_coordinates():
    assert held_draws.number_of_draws(256, 3, is_joint=True) == 256
    assert held_draws.number_of_draws(256, 100, is_joint=True) == 512
    assert held_draws.number_of_draws(256, 100, is_joint=False) == 256


def test_points_are_antithetic_with_unit_variance_and_differ_by_set():
    points = held_draws.normal_points(64, 3)
    assert points.shape == (64, 3)
    assert points.mean(0) == pytest.approx(0, abs=1e-12)
    assert np.square(points).mean(0) == pytest.approx(1)
    assert np.array_equal(points[:32], -points[32:])
    assert not np.allclose(points, held_draws.normal_points(64, 3, 1))


def test_the_number_grows_with_the_error():
    few = held_draws.HeldDraws(("y",), 256, 0.35)
    assert not few.is_enough
    assert few.next_number == 1024
    assert held_draws.HeldDraws(("y",), 256, 0.15).next_number == 512
    assert held_draws.HeldDraws(("y",), 256, float("nan")).next_number == 1024
    assert held_draws.HeldDraws(("y",), 256, 0.05).is_enough
    assert held_draws.HeldDraws(("y",), held_draws.MOST, 1.0).is_enough
    assert "too few" in str(few)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unsupported": "draws"}, "unsupported is 'held draws'"),
        ({"method": "adam", "batch_size": 10}, "leave out batch_size"),
    ],
)
def test_options_that_do_not_go_together(host, options, message):
    with pytest.raises(ValueError, match=message):
        fitted(host.name, inflated, COUNTS, **options)


def test_held_draws_go_with_the_elbo(host):
    with pytest.raises(ValueError, match="go with DeterministicELBO, not BBAlphaELBO"):
        fitted(host.name, inflated, COUNTS, objective=host.package.BBAlphaELBO(alpha=0.5))
    with pytest.raises(ValueError, match="go with DeterministicELBO, not BBAlphaELBO"):
        host.package.BBAlphaELBO(alpha=0.5, held_draws=8)


@pytest.mark.parametrize(
    "options", [{"held_draws": -1}, {"held_draws": 8, "propagation": "sampled"}]
)
def test_numbers_of_draws_that_are_refused(host, options):
    with pytest.raises(ValueError, match="held"):
        host.package.DeterministicELBO(**options)
