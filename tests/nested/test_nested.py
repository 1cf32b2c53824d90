"""Nested inference of whole models, beside quadrature: evidence, marginals, and what is refused."""

import arviz
import jax
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import kstest, norm, spearmanr

from moment_calculus import UnsupportedMoments
from tests.checks.marks import IN_PYRO
from tests.fitting.models import fresh

MEANS = np.array([2.8, 0.8, -0.3, 0.7, -0.1, 0.1, 1.8, 1.2])
ERRORS = np.array([1.5, 1.0, 1.6, 1.1, 0.9, 1.1, 1.0, 1.8])
GROUPS = 8
rng = np.random.default_rng(4)
COUNTS = rng.poisson(np.exp(0.4 + 0.7 * rng.normal(size=(GROUPS, 1))), size=(GROUPS, 3))
LOG_SPREAD = np.linspace(-11.0, 3.0, 561)
HERMITE, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@pytest.fixture(params=["numpyro", "pyro"])
def host(request):
    """A host without parameters of an earlier test."""
    return fresh(request.param)


def schools(host, is_centred):
    """Eight groups of which means and standard errors are known."""
    dist, sample = host.dist, host.language.sample

    def model(errors, y):
        mean = sample("mean", dist.Normal(0.0, 2.0))
        spread = sample("spread", dist.HalfNormal(1.0))
        with host.language.plate("schools", len(y)):
            if is_centred:
                effect = sample("effect", dist.Normal(mean, spread))
            else:
                effect = mean + spread * sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(effect, errors), obs=y)

    return model, host.array(ERRORS), host.array(MEANS)


def density_of_schools(log_spread):
    """Log p(y, log spread), exactly: y is Gaussian."""
    spread = np.exp(log_spread)
    covariance = np.diag(spread**2 + ERRORS**2) + 4.0
    determinant = np.linalg.slogdet(2 * np.pi * covariance)[1]
    fit = -0.5 * MEANS @ np.linalg.solve(covariance, MEANS) - 0.5 * determinant
    return fit + np.log(2) + norm.logpdf(spread) + log_spread


def intercepts(host):
    """Counts of groups with intercepts of their own, whose spread is unknown."""
    dist, sample = host.dist, host.language.sample

    def model(y):
        spread = sample("spread", dist.HalfNormal(1.0))
        with host.language.plate("groups", GROUPS, dim=-2):
            effect = sample("effect", dist.Normal(0.4, spread))
            with host.language.plate("rows", y.shape[-1], dim=-1):
                sample("y", dist.Poisson(host.np.exp(effect)), obs=y)

    return model, host.array(1.0 * COUNTS)


def density_of_groups(log_spread):
    """Log p(y, log spread), by quadrature of each group."""
    spread = np.exp(log_spread)
    total = np.log(2) + norm.logpdf(spread) + log_spread - gammaln(COUNTS + 1).sum()
    for counts in COUNTS:
        effect = 0.4 + spread * HERMITE
        log = counts.sum() * effect - len(counts) * np.exp(effect)
        total += logsumexp(log, b=WEIGHTS)
    return total


def reference(density):
    """Evidence, and the cumulated density of log spread at its table."""
    logs = np.array([density(each) for each in LOG_SPREAD])
    step = LOG_SPREAD[1] - LOG_SPREAD[0]
    mass = np.exp(logs - logsumexp(logs))
    return logsumexp(logs) + np.log(step), np.cumsum(mass) - mass / 2


def total_variation(marginal, cumulated):
    """Between a marginal of the spread and a reference, by cells of the table."""
    found = np.diff(marginal.cdf(np.exp(LOG_SPREAD)))
    return 0.5 * np.abs(found - np.diff(cumulated)).sum()


@pytest.mark.parametrize("is_centred", [True, False])
def test_conjugate_groups_are_exact(host, is_centred):
    model, *data = schools(host, is_centred)
    posterior = host.package.nested(model, *data)
    evidence, cumulated = reference(density_of_schools)
    assert posterior.hyperparameters == ("spread",)
    assert abs(posterior.log_evidence - evidence) < 2e-3
    assert posterior.log_evidence_error < 0.01
    assert total_variation(posterior.marginal("spread"), cumulated) < 2e-3
    assert not posterior.warnings


def test_counts_are_corrected(host):
    """The second cumulant leaves a tenth of the gap of the ELBO."""
    model, y = intercepts(host)
    posterior = host.package.nested(model, y)
    evidence, cumulated = reference(density_of_groups)
    error = posterior.log_evidence - evidence
    gap = error - posterior.correction
    assert abs(error) < min(0.01, 0.25 * abs(gap), posterior.log_evidence_error)
    assert total_variation(posterior.marginal("spread"), cumulated) < 5e-3


@IN_PYRO
def test_latent_marginals_are_those_of_quadrature(host):
    """Also their skewness: total variation below a half of what a Gaussian mixture has."""
    model, y = intercepts(host)
    posterior = host.package.nested(model, y)
    mass = np.exp(np.array([density_of_groups(each) for each in LOG_SPREAD]))
    points = np.linspace(-3.0, 3.0, 1201)
    counts = COUNTS[2]
    likelihood = counts.sum() * points - len(counts) * np.exp(points)
    logs = likelihood + norm.logpdf(points, 0.4, np.exp(LOG_SPREAD)[:, None])
    each = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    exact = np.cumsum(mass @ each / mass.sum())
    marginal = posterior.marginal("effect")
    found = marginal.cdf(points[:, None, None] + 0.0025)[:, 2, 0]
    assert 0.5 * np.abs(np.diff(found) - np.diff(exact)).sum() < 0.01
    assert marginal.shape == (GROUPS, 1)


def test_draws_and_criticism(host):
    """Draws have the moments of the marginals, and ArviZ's verbs take the posterior."""
    model, *data = schools(host, is_centred=True)
    posterior = host.package.nested(model, *data)
    key = (jax.random.key(0),) if host.name == "numpyro" else ()
    draws = {name: np.asarray(each) for name, each in posterior.sample(4000, *key).items()}
    for name in ("spread", "mean", "effect"):
        marginal = posterior.marginal(name)
        error = marginal.standard_deviation / np.sqrt(4000)
        assert (np.abs(draws[name].mean(0) - marginal.mean) < 4.5 * error).all()
        uniform = marginal.cdf(draws[name]).reshape(4000, -1)
        assert (kstest(uniform, "uniform", axis=0).pvalue > 1e-4).all()
    assert len(np.unique(draws["spread"])) > 2000  # between the points of the grid
    distances = np.abs(draws["effect"] - draws["mean"][:, None])
    ranks = [spearmanr(draws["spread"], column)[0] for column in distances.T]
    by_importance = [0.69, 0.63, 0.67, 0.64, 0.66, 0.65, 0.66, 0.66]  # 4e6 draws of the prior
    np.testing.assert_allclose(ranks, by_importance, atol=0.04)
    data_of_arviz = host.package.to_inference_data(model, posterior, *data, num_samples=50)
    assert arviz.loo(data_of_arviz).n_data_points == 8
    assert "log evidence" in posterior.summary()


def two_modes(host):
    """Effects whose spread is about a third or about three, and data that do not tell."""
    dist, sample = host.dist, host.language.sample

    def model(y):
        log = sample("log_spread", dist.Normal(0.0, 2.0))
        host.language.factor("modes", -3.0 * (log**2 - 1.0) ** 2)
        effects = sample("effects", dist.Normal(0.0, host.np.exp(log)).expand([2]).to_event(1))
        sample("y", dist.Normal(effects, 100.0).to_event(1), obs=y)

    return model, host.array([1.0, 2.0])


@IN_PYRO
def test_a_site_may_hold_several_hyperparameters(host):
    """Which have the marginals that they have as sites of their own."""
    dist, sample = host.dist, host.language.sample

    def model(y, *names):
        prior = dist.HalfNormal(1.0)
        if names:
            one, other = (sample(name, prior) for name in names)
        else:
            one, other = sample("both", prior.expand([2]).to_event(1))
        effect = sample("effect", dist.Normal(0.0, one).expand([len(y)]).to_event(1))
        sample("y", dist.Normal(effect, other).to_event(1), obs=y)

    y = host.array(MEANS)
    together, apart = host.package.nested(model, y), host.package.nested(model, y, "one", "other")
    marginal = together.marginal("both")
    assert together.log_evidence == pytest.approx(apart.log_evidence, abs=1e-3)
    for place, name in enumerate(("one", "other")):
        expected = apart.marginal(name)
        assert marginal.mean[place] == pytest.approx(expected.mean, rel=1e-3)
        assert marginal.quantile(0.9)[place] == pytest.approx(expected.quantile(0.9), rel=1e-3)
        assert marginal.cdf(0.7)[place] == pytest.approx(expected.cdf(0.7), rel=1e-3)
        assert marginal.sample(np.random.default_rng(0), 3).shape == (3, 2)


@IN_PYRO
def test_two_modes_are_flagged(host):
    model, y = two_modes(host)
    posterior = host.package.nested(model, y)
    assert any("modes" in warning for warning in posterior.warnings)


def refused(host, kind):
    """A model that is no latent Gaussian one."""
    dist, sample = host.dist, host.language.sample

    def model(y):
        spread = sample("spread", dist.HalfNormal(1.0))
        if kind == "heavy tails":
            prior = dist.StudentT(4.0, 0.0, spread).expand([2]).to_event(1)
            effects = sample("effects", prior)
            return sample("y", dist.Poisson(host.np.exp(effects)).to_event(1), obs=y)
        effects = sample("effects", dist.Normal(0.0, spread).expand([2]).to_event(1))
        if kind == "mixture":
            weights = dist.Categorical(probs=host.array([0.5, 0.5]))
            fn = dist.MixtureSameFamily(weights, dist.Normal(effects, 1.0))
            return sample("y", fn, obs=y[0])
        noise = sample("noise", dist.Normal(0.0, 1.0))
        return sample("y", dist.Normal(effects, host.np.exp(noise)).to_event(1), obs=y)

    return model, host.array([1.0, 2.0])


@IN_PYRO
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("heavy tails", "given 'spread', site 'effects' is not Gaussian"),
        ("mixture", "of one linear predictor"),
    ],
)
def test_other_models_are_refused(host, kind, cause):
    model, y = refused(host, kind)
    with pytest.raises(UnsupportedMoments, match=cause):
        host.package.nested(model, y)


@IN_PYRO
def test_the_remedy_runs(host):
    """The site behind a second parameter is found, and may be named in over=."""
    model, y = refused(host, "noise")
    posterior = host.package.nested(model, y, over=["noise", "spread"])
    assert posterior.log_evidence == pytest.approx(host.package.nested(model, y).log_evidence)


@IN_PYRO
def test_over_names_latent_sites(host):
    model, y = intercepts(host)
    with pytest.raises(ValueError, match="'sigma' is no latent site"):
        host.package.nested(model, y, over=["sigma"])
    with pytest.raises(UnsupportedMoments, match="'spread' is no real number"):
        host.package.nested(model, y, over=["effect"])
