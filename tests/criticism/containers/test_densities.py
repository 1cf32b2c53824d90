"""Log densities of draws in containers, against SciPy; and both hosts alike."""

import functools

import numpy as np
import pytest
from scipy import stats

from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import (
    NOISE,
    X,
    Y,
    convert,
    drawing,
    gaussian,
    local,
    scaled,
)

LOG_SCALE = (-0.7, 0.2)


def joint(weight, scale):
    """log p of one draw of ``scaled``."""
    prior = stats.norm().logpdf(weight).sum() + stats.halfnorm().logpdf(scale)
    return prior + stats.norm(X @ weight, scale).logpdf(Y).sum()


@IN_PYRO
def test_of_model_and_guide(host):
    """Also where draws are made in batches."""
    mean, covariance = gaussian(X, Y)
    data = convert(
        host, drawing(host, mean, covariance, LOG_SCALE), scaled(host), X, Y, batch_size=7
    )
    weights, scales = (data.posterior[site].values[0] for site in ("weight", "scale"))
    exact = [joint(*draw) for draw in zip(weights, scales, strict=True)]
    np.testing.assert_allclose(data.sample_stats["lp"].values[0], exact, rtol=1e-10)
    lognormal = stats.lognorm(LOG_SCALE[1], scale=np.exp(LOG_SCALE[0]))
    known = stats.multivariate_normal(mean, covariance).logpdf(weights) + lognormal.logpdf(scales)
    np.testing.assert_allclose(data.sample_stats["log_q"].values[0], known, rtol=1e-10)
    likelihood = stats.norm(weights @ X.T, scales[:, None]).logpdf(Y)
    np.testing.assert_allclose(data.log_likelihood["obs"].values[0], likelihood, rtol=1e-10)
    assert all(part.dtype == np.float64 for part in data.sample_stats.data_vars.values())


def test_masks_and_scales_count_and_factors_too(host):
    kept, power = np.arange(len(Y)) % 3 > 0, 0.25

    def model(x, y=None):
        weight = host.weight()
        host.language.factor("pull", -weight[0])
        with (
            host.language.plate("data", len(x)),
            host.handlers.mask(mask=host.array(kept)),
            host.handlers.scale(scale=power),
        ):
            host.language.sample("obs", host.dist.Normal(x @ weight, NOISE), obs=y)

    data = convert(host, drawing(host, *gaussian(X, Y)), model, X, Y)
    weights = data.posterior["weight"].values[0]
    each = np.where(kept, stats.norm(weights @ X.T, NOISE).logpdf(Y), 0)
    np.testing.assert_allclose(data.log_likelihood["obs"].values[0], each, rtol=1e-10)
    prior = stats.norm().logpdf(weights).sum(1) - weights[:, 0]
    lp = data.sample_stats["lp"].values[0]
    np.testing.assert_allclose(lp, prior + power * each.sum(1), rtol=1e-10)
    assert list(data.log_likelihood) == ["obs"]


def test_subsampled_plates_count_whole(host):
    def guide(x, y=None):
        host.language.sample("weight", host.dist.Normal(host.array(np.ones(3)), 0.1).to_event(1))
        with host.language.plate("data", len(x), subsample_size=4):
            host.language.sample("effect", host.dist.Normal(host.array(0.5), 2.0))

    data = convert(host, guide, local(host, part=4), X, Y, batch_size=25)
    weights, effects = (data.posterior[site].values[0] for site in ("weight", "effect"))
    assert effects.shape == (50, len(Y))
    for part in (data.posterior["effect"], data.log_likelihood["obs"]):
        assert part.dims == ("chain", "draw", "data")
    likelihood = stats.norm(weights @ X.T + effects, NOISE).logpdf(Y)
    np.testing.assert_allclose(data.log_likelihood["obs"].values[0], likelihood, rtol=1e-10)
    normal = stats.norm().logpdf
    lp = normal(weights).sum(1) + normal(effects).sum(1) + likelihood.sum(1)
    np.testing.assert_allclose(data.sample_stats["lp"].values[0], lp, rtol=1e-10)
    known = stats.norm(1, 0.1).logpdf(weights).sum(1) + stats.norm(0.5, 2).logpdf(effects).sum(1)
    np.testing.assert_allclose(data.sample_stats["log_q"].values[0], known, rtol=1e-10)


@IN_PYRO
def test_of_linear_response(host):
    mean = np.linalg.lstsq(X, Y, rcond=None)[0]
    fit = host.fit(scaled(host), *map(host.array, (X, Y)), method="newton")
    given = {"params": fit.params} if host.name == "numpyro" else {}
    found = host.package.linear_response(scaled(host), fit.guide, *map(host.array, (X, Y)), **given)
    before = {name: np.asarray(part) for name, part in fit.params.items()}
    trained_on(host, fit)
    data = convert(host, found, scaled(host), X, Y)
    loc = np.append(np.asarray(found.location("weight")), found.location("scale"))
    covariance = np.asarray(found.covariance())
    weights, scales = (data.posterior[site].values[0] for site in ("weight", "scale"))
    points = np.column_stack([weights, np.log(scales)])
    known = stats.multivariate_normal(loc, covariance).logpdf(points) - np.log(scales)
    np.testing.assert_allclose(data.sample_stats["log_q"].values[0], known, rtol=1e-8)
    exact = [joint(*draw) for draw in zip(weights, scales, strict=True)]
    np.testing.assert_allclose(data.sample_stats["lp"].values[0], exact, rtol=1e-8)
    assert abs(weights.mean(0) - mean).max() < 0.2
    assert before.keys() == fit.params.keys()


def trained_on(host, fit):
    """Pyro trains in place: later steps are not to count."""
    if host.name == "pyro":
        for part in fit.guide.parameters():
            part.data.add_(3.0)


@pytest.mark.parametrize(
    ("host", "name"),
    [("pyro", "AutoMultivariateNormal"), ("numpyro", "AutoNormal")],
    indirect=["host"],
)
def test_of_guides_of_the_hosts(host, name):
    """Densities on the sites' supports: importance weights have the evidence."""
    arrays = [host.array(part) for part in (X, Y)]
    guide = getattr(host.autoguide, name)(scaled(host))
    fit = host.package.fit(scaled(host), guide, *arrays, method="lbfgs", by_draws=False)
    data = convert(host, fit, scaled(host), X, Y, num_samples=2000, num_prior_samples=0)
    ratios = (data.sample_stats["lp"] - data.sample_stats["log_q"]).values[0]
    weights = np.exp(ratios - ratios.max())
    error = weights.std() / weights.mean() / len(weights) ** 0.5
    found = np.log(weights.mean()) + ratios.max()
    assert abs(found - evidence()) < 3 * error < 0.4


@functools.cache
def evidence():
    """log p(y) of ``scaled``, by quadrature over its scale."""
    scales = np.linspace(0.1, 3, 200)
    identity = np.eye(len(Y))
    each = [
        stats.multivariate_normal(np.zeros(len(Y)), X @ X.T + scale**2 * identity).logpdf(Y)
        for scale in scales
    ]
    joint = np.array(each) + stats.halfnorm().logpdf(scales)
    return np.log(np.trapezoid(np.exp(joint - joint.max()), scales)) + joint.max()
