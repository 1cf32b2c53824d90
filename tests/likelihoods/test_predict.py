"""Predictions of sites in closed form, alike in both frameworks."""

import numpy as np
import pytest
from scipy import stats

import numpyro_moments.likelihoods.expected
import pyro_moments.likelihoods.expected
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.predictions.moments import Moments
from tests.fitting.models import started
from tests.numpyro.models import data

X, Y = data()
PREDICTIVES = {
    "numpyro": numpyro_moments.likelihoods.expected.PREDICTIVES,
    "pyro": pyro_moments.likelihoods.expected.PREDICTIVES,
}


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-5, atol=1e-6)


def predictions(host, model):
    """Predictions of a guide at its start, and the median of its sites."""
    guide = host.package.DVIGuide(init_scale=0.3)
    params = started(host, model, guide, host.array(X), host.array(Y))
    median = {name: np.asarray(value) for name, value in guide.median(*params).items()}

    def predict(x, *y, **options):
        data = (host.array(part) for part in (x, *y))
        return host.package.predict(model, guide, *params, *data, **options)

    return predict, median


def test_log_density_is_exact_for_linear_regression(host):
    def model(x, y=None):
        w, b = host.weight(), host.language.sample("b", host.dist.Normal(0.0, 1.0))
        host.observe(x, host.dist.Normal(x @ w + b, 0.3), y)

    predict, median = predictions(host, model)
    mean, variance = X @ median["weight"] + median["b"], 0.09 * (X**2).sum(-1) + 0.18
    for options in ({}, {"covariance": "diagonal"}):
        prediction = predict(X, **options)["obs"]
        assert isinstance(prediction, host.package.Prediction)
        close(prediction.mean, mean)
        close(prediction.variance, variance)
    close(prediction.log_prob(host.array(Y)), stats.norm(mean, variance**0.5).logpdf(Y))
    assert predict(X[:3])["obs"].mean.shape == (3,)


def test_every_site_that_is_not_latent(host):
    """Several observable sites, one with random noise, a deterministic one, and a factor."""

    def model(x, y=None):
        w = host.weight()
        mean = host.language.deterministic("mean", x @ w)
        noise = host.language.sample("noise", host.dist.Gamma(2.0, 1.0))
        host.language.factor("penalty", -host.np.sum(w**2))
        with host.language.plate("data", len(x)):
            host.language.sample("first", host.dist.Normal(mean, noise), obs=y)
            host.language.sample("second", host.dist.Normal(2 * mean, 0.5), obs=y)

    predict, _ = predictions(host, model)
    for arguments in ((X,), (X, Y)):
        found = predict(*arguments)
        assert set(found) == {"mean", "first", "second"}
        assert isinstance(found["mean"], Moments)
        close(found["mean"].mean, found["first"].mean)
        close(found["mean"].variance, found["first"].epistemic_variance)
        close(found["second"].mean, 2 * found["first"].mean)
        close(found["second"].epistemic_variance, 4 * found["first"].epistemic_variance)


def observed(host, family):
    def model(x, y=None):
        shift = x * host.weight()
        host.observe(x, family(shift, host.np.eye(3)), y)

    guide, x = host.package.DVIGuide(model), host.array(X)
    if host.name == "pyro":  # whose first loss would be refused
        guide(x, x)
    params = started(host, model, guide, x, x) if host.name == "numpyro" else ()
    return guide.median(*params), host.package.predict(model, guide, *params, x)


def test_no_predictive_moments_names_the_candidates(host):
    def family(shift, root):
        return host.dist.MultivariateStudentT(host.np.asarray(4.0), shift, root)

    candidates = r"'obs'.*MultivariateStudentT.*Normal, .*Categorical"
    with pytest.raises(UnsupportedMoments, match=candidates) as refusal:
        observed(host, family)
    assert f"@{host.package.__name__}.predictive_moments" in str(refusal.value)


def test_registered_predictive_moments_serve(host):
    class Shifted(host.dist.MultivariateNormal):
        """A distribution of a user's own."""

    @host.package.predictive_moments(Shifted)
    def shifted(fn):
        mean = (fn.loc.value if host.name == "pyro" else fn.loc.gaussian()).mean
        ones = host.np.ones_like(mean)
        return mean + 1, 2 * ones, 3 * ones, lambda value: value

    try:
        median, found = observed(host, Shifted)
    finally:
        PREDICTIVES[host.name].pop(Shifted)
    close(found["obs"].mean, X * np.asarray(median["weight"]) + 1)
    close(found["obs"].variance, np.full(X.shape, 5.0))
