"""Every verb takes the covariances of a GaussianGuide, on a hierarchy whose posterior is Gaussian.

A mean, a level and the effects of groups are known by their sums alone, so that marginals without
covariances give other predictions, weights and scores. The oracle is linear algebra.
"""

import functools

import jax
import numpy as np
import pytest
from scipy import stats

from tests.checks.marks import IN_PYRO
from tests.criticism.comparison.references import chains
from tests.criticism.containers.programs import doubles
from tests.fitting.models import fresh

GROUPS, NOISE = 3, 0.4
GROUP = np.array([0, 0, 1, 1, 2, 2])
Y = np.array([1.2, 0.9, 2.6, 3.1, 1.7, 2.0])
PRIOR = np.array([3.0, 0.5, 1.0, 1.0, 1.0])  # of mean, logarithm of the level, effects
DESIGN = np.column_stack([np.ones(6), np.ones(6), np.eye(GROUPS)[GROUP]])


def posterior(rows=slice(None)):
    """Mean and covariance of mean, logarithm of the level and effects, by some of the rows."""
    design = DESIGN[rows]
    covariance = np.linalg.inv(np.diag(PRIOR**-2) + design.T @ design / NOISE**2)
    return covariance @ design.T @ Y[rows] / NOISE**2, covariance


MEAN, COVARIANCE = posterior()
EVIDENCE = NOISE**2 * np.eye(6) + DESIGN @ np.diag(PRIOR**2) @ DESIGN.T
LOG_EVIDENCE = stats.multivariate_normal(np.zeros(6), EVIDENCE).logpdf(Y)


def hierarchy(host):
    """Observations around a mean, the logarithm of a positive level, and effects of groups."""
    sample, dist = host.language.sample, host.dist

    def model(group, y=None):
        mean = sample("mean", dist.Normal(0.0, PRIOR[0]))
        level = sample("level", dist.LogNormal(0.0, PRIOR[1]))
        with host.language.plate("groups", GROUPS):
            effect = sample("effect", dist.Normal(0.0, 1.0))
        location = mean + host.np.log(level) + effect[..., group]
        with host.language.plate("rows", len(group)):
            sample("obs", dist.Normal(location, NOISE), obs=y)

    return model


def trained(host, guide, **options):
    """Model, data and a fit to convergence."""
    model, data = hierarchy(host), (host.array(GROUP), host.array(Y))
    options = {"method": "newton", "by_draws": False, "progress_bar": False, **options}
    return model, data, host.package.fit(model, guide, *data, **options)


@functools.cache
def fitted(name):
    host = fresh(name)
    with doubles(host):
        return trained(host, host.package.GaussianGuide())


@functools.cache
def begun(name):
    """A fit of a few steps, whose covariances are no longer zero."""
    host = fresh(name)
    with doubles(host):
        return trained(host, host.package.GaussianGuide(), method="adam", steps=5)


@functools.cache
def response_of(name):
    host, (model, data, fit) = fresh(name), fitted(name)
    with doubles(host):
        return host.package.linear_response(model, fit, *data)


@pytest.fixture(autouse=True)
def _in_doubles(host):
    with doubles(host):
        yield


def joint(host, fit):
    arguments = () if host.name == "pyro" else (fit.params,)
    found = fit.guide.get_posterior(*arguments).covariance_matrix
    return np.asarray(found.detach() if host.name == "pyro" else found)


def columns(draws):
    """Draws by site on the unconstrained space, [draws, coordinates]."""
    mean, level, effect = (np.asarray(draws[name]) for name in ("mean", "level", "effect"))
    return np.column_stack([mean, np.log(level), effect])


def assert_of_posterior(draws):
    """Means and covariances within five standard errors."""
    scale, error = np.sqrt(np.diag(COVARIANCE)), len(draws) ** -0.5
    np.testing.assert_array_less(abs(draws.mean(0) - MEAN) / scale, 5 * error)
    differences = (np.cov(draws.T) - COVARIANCE) / np.outer(scale, scale)
    assert abs(differences).max() < 5 * 2**0.5 * error


def test_the_fit_is_the_posterior(host):
    _, _, fit = fitted(host.name)
    assert fit.loss == pytest.approx(-LOG_EVIDENCE, abs=1e-6)
    np.testing.assert_allclose(joint(host, fit), COVARIANCE, atol=1e-5)
    np.testing.assert_allclose(np.asarray(fit.median()["effect"]), MEAN[2:], atol=1e-5)
    low, high = np.log(np.asarray(fit.quantiles([0.1, 0.9])["level"]))
    spread = stats.norm.ppf(0.9) * COVARIANCE[1, 1] ** 0.5
    np.testing.assert_allclose([low, high], [MEAN[1] - spread, MEAN[1] + spread], atol=1e-5)
    assert "effect[2]" in fit.summary()


def test_it_begins_with_a_mean_field(host):
    _, _, start = trained(host, host.package.DVIGuide())
    _, _, fit = trained(host, host.package.GaussianGuide(), start=start)
    assert fit.losses[0] == pytest.approx(start.loss, abs=1e-9)
    assert fit.loss == pytest.approx(-LOG_EVIDENCE, abs=1e-6)
    with pytest.raises(ValueError, match=r"factor'.*; model and guide have"):
        trained(host, host.package.DVIGuide(), start=fit)
    _, _, point = trained(host, host.autoguide.AutoDelta(hierarchy(host)), method="adam", steps=1)
    with pytest.raises(ValueError, match=r"; model and guide have .*factor"):
        trained(host, host.package.GaussianGuide(), start=point)


def test_predictions_have_the_covariances(host):
    model, data, fit = fitted(host.name)
    variance = np.einsum("ni,ij,nj->n", DESIGN, COVARIANCE, DESIGN) + NOISE**2
    response = response_of(host.name)
    for predict in (functools.partial(host.package.predict, model, fit), response.predict):
        found = predict(data[0])["obs"]
        np.testing.assert_allclose(np.asarray(found.mean), DESIGN @ MEAN, atol=1e-5)
        np.testing.assert_allclose(np.asarray(found.variance), variance, rtol=1e-4)


def test_draws_have_the_covariances(host):
    _, _, fit = fitted(host.name)
    key = jax.random.key(0)
    if host.name == "pyro":
        draws, corrected = fit.guide.sample_posterior(2000), response_of("pyro").sample(2000)
    else:
        draws = fit.guide.sample_posterior(key, fit.params, sample_shape=(2000,))
        corrected = response_of("numpyro").sample(2000, key)
    for found in (draws, corrected):
        assert_of_posterior(columns(found))


def test_linear_response_is_that_of_the_posterior(host):
    response = response_of(host.name)
    np.testing.assert_allclose(np.asarray(response.covariance()), COVARIANCE, atol=1e-5)
    left = (Y - DESIGN @ MEAN) / NOISE**2
    influence = np.asarray(response.influence("mean"))
    np.testing.assert_allclose(influence, COVARIANCE[0] @ DESIGN.T * left, atol=1e-5)
    by_prior = np.asarray(response.prior_sensitivity("mean")["mean"]["loc"])
    assert by_prior == pytest.approx(COVARIANCE[0, 0] / PRIOR[0] ** 2, abs=1e-5)
    weighted = response.moments("effect", importance_weights=True, num_samples=4000)
    error = np.asarray(weighted.covariance) - COVARIANCE[2:, 2:]
    assert abs(error).max() / COVARIANCE[2, 2] < 5 * (2 / 4000) ** 0.5


@pytest.mark.parametrize("source", ["guide", "response"])
def test_importance_weights_are_those_of_the_joint_density(host, source):
    """They are constant, since the guide is the posterior."""
    model, data, fit = fitted(host.name)
    of = fit if source == "guide" else response_of(host.name)
    options = {"num_samples": 200, "num_prior_samples": 0}
    stored = host.package.to_inference_data(model, of, *data, **options).sample_stats
    if source == "guide":
        ratios = stored["lp"].values - stored["log_q"].values
        np.testing.assert_allclose(ratios, LOG_EVIDENCE, atol=1e-4)
    scores = host.package.loo(model, of, *data, num_samples=2000)
    left_out = [posterior(np.arange(6) != row) for row in range(6)]
    exact = sum(
        stats.norm(row @ mean, (row @ covariance @ row + NOISE**2) ** 0.5).logpdf(y)
        for row, y, (mean, covariance) in zip(DESIGN, Y, left_out, strict=True)
    )
    assert scores.elpd_loo == pytest.approx(exact, abs=0.3)


def test_diagnose_finds_nothing_wrong_with_it(host):
    model, data, fit = fitted(host.name)
    found = host.package.diagnose(model, fit, *data, verbose=False)
    verdicts = {finding.check: finding.verdict.value for finding in found.findings}
    names = ("optimum", "k̂ of GaussianGuide", "k̂ of linear response", "standard deviations")
    assert {name: verdicts[name] for name in names} == dict.fromkeys(names, "good")


@IN_PYRO
def test_chains_agree_with_it(host):
    model, data, fit = fitted(host.name)
    flat = np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, (4, 1000))
    draws = {"mean": flat[..., 0], "level": np.exp(flat[..., 1]), "effect": flat[..., 2:]}
    compared = host.package.compare_with_nuts(model, fit, *data, reference=chains(draws))
    assert "GaussianGuide" in str(compared)


def test_a_stored_fit_has_its_covariances(host, tmp_path):
    model, data, fit = begun(host.name)
    fit.save(tmp_path / "fit.safetensors")
    guide = host.package.GaussianGuide()
    loaded = host.package.load(tmp_path / "fit.safetensors", model, guide, *data)
    np.testing.assert_allclose(joint(host, loaded), joint(host, fit), rtol=1e-12)
    assert (joint(host, fit) != 0).all()


def test_it_is_no_prior_of_new_data(host):
    _, _, fit = begun(host.name)
    with pytest.raises(ValueError, match="GaussianGuide does not give its posterior as distr"):
        trained(host, host.package.DVIGuide(), prior=fit)
