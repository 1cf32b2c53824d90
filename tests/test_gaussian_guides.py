"""The Gaussian guide of both hosts, beside the hosts' own guide of the same family."""

import jax
import numpy as np
import pytest
import torch
from numpyro.infer.autoguide import AutoMultivariateNormal as NumPyroGuide
from pyro.infer.autoguide import AutoMultivariateNormal as PyroGuide

import numpyro_moments
import pyro_moments
from moment_calculus import UnsupportedMoments
from moment_guides.numpyro.gaussian import GaussianGuide as InNumPyro
from moment_guides.pyro.gaussian import GaussianGuide as InPyro
from moment_inference.optimisation import minimiser, rounds
from tests.cases.hosts import models

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=20)
Y = 1 + 0.5 * X + 0.4 * RANDOM.normal(size=20)
QUIET = {"by_draws": False, "progress_bar": False, "method": "newton"}


def pyro_model(x, y, subsample_size=None):
    return model(models.PYRO, x, y, subsample_size)


def numpyro_model(x, y, subsample_size=None):
    return model(models.NUMPYRO, x, y, subsample_size)


def model(host, x, y, subsample_size=None):
    """A line with random ends, a positive scale, and effects in a plate."""
    slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
    scale = host.sample("scale", host.dist.HalfNormal(1.0))
    with host.plate("ends", 2, subsample_size=subsample_size):
        ends = host.sample("end", host.dist.Normal(0.0, 2.0))
    with host.plate("data", len(x)):
        host.sample("y", host.dist.Normal(ends.sum(-1) + slope * x, scale), obs=y)


HOSTS = {
    "pyro": (pyro_moments, pyro_model, InPyro, PyroGuide, torch.tensor),
    "numpyro": (numpyro_moments, numpyro_model, InNumPyro, NumPyroGuide, np.asarray),
}


def joint(name, fit):
    """Mean and covariance of slope, scale and ends, in the order of the model."""
    arguments = () if name == "pyro" else (fit.params,)
    q = fit.guide.get_posterior(*arguments)
    mean, covariance = q.mean, q.covariance_matrix
    detached = [part.detach() if hasattr(part, "detach") else part for part in (mean, covariance)]
    return [np.asarray(part) for part in detached]


@pytest.mark.parametrize("name", HOSTS)
def test_newton_and_response_are_those_of_the_host_s_guide(name):
    host, model, ours, theirs, array = HOSTS[name]
    data = array(X), array(Y)
    fit = host.fit(model, ours(init_scale=0.3), *data, **QUIET)
    other = host.fit(model, theirs(model), *data, **QUIET)
    assert fit.converged
    np.testing.assert_allclose(fit.loss, other.loss, atol=1e-6)
    mean, covariance = joint(name, fit)
    if name == "pyro":
        loc, tril = other.guide.loc.detach(), other.guide.scale_tril.detach()
        tril = other.guide.scale.detach()[:, None] * tril
    else:
        loc, tril = other.params["auto_loc"], other.params["auto_scale_tril"]
    np.testing.assert_allclose(mean, loc, atol=1e-4)
    scales = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    np.testing.assert_allclose(covariance / scales, np.asarray(tril @ tril.T) / scales, atol=1e-4)
    assert abs(covariance[2, 3]) > 0.5 * covariance[2, 2]  # the ends are known by their sum
    ours, theirs = (host.linear_response(model, each, *data) for each in (fit, other))
    for site in ("slope", "scale", "end"):
        deviation = np.asarray(ours.standard_deviation(site))
        np.testing.assert_allclose(
            deviation, np.asarray(theirs.standard_deviation(site)), rtol=1e-3
        )


@pytest.mark.parametrize("name", HOSTS)
def test_independent_coordinates_end_where_dense_hessians_do(name, monkeypatch):
    host, model, _, _, array = HOSTS[name]
    dense = host.fit(model, host.DVIGuide(), array(X), array(Y), **QUIET)
    monkeypatch.setattr(rounds, "FEW", 0)
    monkeypatch.setattr(minimiser, "_by_dense_hessians", None)  # is not called
    by_products = host.fit(model, host.DVIGuide(), array(X), array(Y), **QUIET)
    assert by_products.converged
    np.testing.assert_allclose(by_products.loss, dense.loss, atol=1e-8)
    for parameter, value in dense.params.items():
        np.testing.assert_allclose(by_products.params[parameter], value, atol=1e-4)


@pytest.mark.parametrize("name", HOSTS)
def test_draws_and_marginals_are_those_of_the_joint_posterior(name):
    host, model, ours, _, array = HOSTS[name]
    fit = host.fit(model, ours(init_scale=0.3), array(X), array(Y), **{**QUIET, "tolerance": 1e-4})
    mean, covariance = joint(name, fit)
    if name == "pyro":
        draws = fit.guide.sample_posterior(4000)
        median, quantiles = fit.guide.median(), fit.guide.quantiles([0.16, 0.84])
    else:
        key = jax.random.key(0)
        draws = fit.guide.sample_posterior(key, fit.params, sample_shape=(4000,))
        median, quantiles = (
            fit.guide.median(fit.params),
            fit.guide.quantiles(fit.params, [0.16, 0.84]),
        )
    free = {key: np.asarray(value) for key, value in draws.items()}
    free["scale"] = np.log(free["scale"])
    columns = np.column_stack([free["slope"], free["scale"], free["end"]])
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_array_less(np.abs(columns.mean(0) - mean) / scale, 5 / np.sqrt(4000))
    error = (np.cov(columns.T) - covariance) / np.outer(scale, scale)
    assert np.abs(error).max() < 5 * np.sqrt(2 / 4000)
    np.testing.assert_allclose(np.asarray(median["scale"]), np.exp(mean[1]), rtol=1e-6)
    low, high = np.asarray(quantiles["end"])
    np.testing.assert_allclose((high - low) / 2, 0.99446 * scale[2:], rtol=1e-4)


@pytest.mark.parametrize("name", HOSTS)
def test_a_plate_that_draws_a_subsample_is_refused(name):
    host, model, ours, _, array = HOSTS[name]
    with pytest.raises(UnsupportedMoments, match="plate 'ends', which draws 1 of its 2"):
        host.fit(model, ours(), array(X), array(Y), 1, by_draws=False, steps=1)


@pytest.mark.parametrize("name", HOSTS)
def test_too_many_coordinates_are_refused(name):
    host, _, ours, _, array = HOSTS[name]
    sides = models.PYRO if name == "pyro" else models.NUMPYRO

    def wide(y):
        prior = sides.dist.Normal(0.0, 1.0).expand([501]).to_event(1)
        weight = sides.sample("weight", prior)
        sides.sample("y", sides.dist.Normal(weight.sum(-1), 1.0), obs=y)

    with pytest.raises(UnsupportedMoments, match="501 coordinates, most of them of site 'weight'"):
        host.fit(wide, ours(), array(1.0), by_draws=False, steps=1)


def test_response_and_predictions_of_a_factor_of_correlations():
    """Where the guide runs alone its transforms keep moments, too."""
    sides, group = models.PYRO, torch.arange(20) % 4

    def model(x, y=None):
        factor = sides.sample("factor", sides.dist.LKJCholesky(2, 2.0))
        with sides.plate("groups", 4):
            prior = sides.dist.MultivariateNormal(torch.zeros(2), scale_tril=factor)
            effect = sides.sample("effect", prior)
        with sides.plate("data", len(x)):
            mean = effect[group, 0] + effect[group, 1] * x
            sides.sample("y", sides.dist.Normal(mean, 0.5), obs=y)

    data = torch.tensor(X), torch.tensor(Y)
    fit = pyro_moments.fit(model, InPyro(init_scale=0.3), *data, **QUIET)
    response = pyro_moments.linear_response(model, fit.guide, *data)
    assert (response.standard_deviation("factor") > 0.5 * marginal_scale(fit, "factor")).all()
    assert np.isfinite(pyro_moments.predict(model, fit.guide, data[0])["y"].mean).all()


def marginal_scale(fit, site):
    return fit.guide._marginal(site)[1].detach()
