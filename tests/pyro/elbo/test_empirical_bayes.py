"""One prior: λ* to the analytic ELBO, its exact marginal to all else."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS, TraceMeanField_ELBO
from scipy import integrate, stats

from pyro_moments import DeterministicELBO, DVIGuide, EmpiricalBayesNormal, fit
from tests.pyro import models

X, Y = models.data()


def test_log_prob_is_the_marginal_over_the_variance():
    prior = EmpiricalBayesNormal([3], alpha=1.5, beta=2.0)
    value = torch.tensor([0.3, -1.0, 2.0])

    def joint(variance):
        weights = stats.norm.pdf(value.numpy(), scale=math.sqrt(variance)).prod()
        return weights * stats.invgamma.pdf(variance, 1.5, scale=2.0)

    expected = math.log(integrate.quad(joint, 0, math.inf)[0])
    assert prior.log_prob(value).item() == pytest.approx(expected, rel=1e-5)


def test_samples_have_the_marginal_scale():
    prior = EmpiricalBayesNormal([2], alpha=4.0, beta=6.0)
    draws = prior.sample([40_000])
    assert draws.shape == (40_000, 2)
    assert draws.var().item() == pytest.approx(prior.variance[0].item(), rel=0.05)
    squares = draws**2 - draws.var()
    assert (squares[:, 0] * squares[:, 1]).mean() > 0.5  # the variance is common to the set


def test_expand_makes_independent_sets():
    prior = EmpiricalBayesNormal([4]).expand([3])
    assert prior.sample().shape == (3, 4)
    assert prior.log_prob(torch.zeros(3, 4)).shape == (3,)


def test_hyperparameters_must_be_positive():
    with pytest.raises(ValueError, match=r"alpha=0.*must both be positive"):
        EmpiricalBayesNormal([2], alpha=0)


def with_prior(prior):
    return models.regression(lambda f: dist.Normal(f, 0.3), lambda: prior)


regression = with_prior(EmpiricalBayesNormal([3], alpha=1.0, beta=1.0))


def test_analytic_elbo_uses_the_optimal_prior_variance():
    guide = DVIGuide(init_scale=0.2)
    loss = DeterministicELBO().loss(regression, guide, X, Y)
    loc, scale = guide.locs.w.detach(), guide.scales.w.detach()
    optimal = ((scale**2 + loc**2).sum() + 2 * 1.0) / (3 + 2 * 1.0 + 2)
    fixed = with_prior(dist.Normal(0.0, optimal.sqrt()).expand([3]).to_event(1))
    assert loss == pytest.approx(DeterministicELBO().loss(fixed, guide, X, Y), rel=1e-6)


def test_pyros_own_elbo_sees_the_same_divergence():
    def prior_only():
        pyro.sample("w", EmpiricalBayesNormal([5, 2]))

    guide = DVIGuide(init_scale=0.2)
    loss = DeterministicELBO().loss(prior_only, guide)
    assert loss == pytest.approx(TraceMeanField_ELBO().loss(prior_only, guide), rel=1e-5)


def test_nuts_samples_the_same_model_and_agrees():
    mcmc = MCMC(NUTS(regression), num_samples=150, warmup_steps=100, disable_progbar=True)
    mcmc.run(X, Y)
    samples = mcmc.get_samples()["w"]
    guide = DVIGuide()
    fit(regression, guide, X, Y, method="lbfgs", progress_bar=False)
    difference = (samples.mean(0) - guide.median()["w"]).abs()
    assert (difference < 5 * samples.std(0) / math.sqrt(30)).all()
