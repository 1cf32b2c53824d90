"""Predictions by particles are mixtures of what each of them predicts."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from pyro_moments import DVIGuide, Prediction, SampledPrediction, UnsupportedMoments, predict
from tests.checks import uncertainty
from tests.checks.predictions import LEVELS, check_draws, check_levels
from tests.pyro.likelihoods.test_likelihoods import latent

pytestmark = pytest.mark.usefixtures("double_precision")

LOCATIONS = torch.as_tensor(uncertainty.LOCATIONS)


def prediction(name, f=LOCATIONS):
    return SampledPrediction("y", uncertainty.CASES[name].host(dist, torch, f))


@pytest.mark.parametrize("name", uncertainty.CASES)
def test_against_sums_and_integrals(name):
    found = prediction(name)
    uncertainty.check_particles(name, found)
    for value in (1.0, torch.ones(3), torch.ones(2, 3)):
        exact = uncertainty.log_density(name, 1.0)
        density = found.log_prob(torch.as_tensor(value)).expand(torch.Size([2, 3]))
        np.testing.assert_allclose(density, np.broadcast_to(exact, (2, 3)), rtol=1e-6)
    if name in ("Bernoulli", "Binomial"):
        np.testing.assert_allclose(found.probs, torch.sigmoid(LOCATIONS).mean(0))


@pytest.mark.parametrize("name", ["Normal", "StudentT", "Poisson", "Bernoulli"])
def test_single_precision(name):
    torch.set_default_dtype(torch.float32)
    found = prediction(name, LOCATIONS.float())
    assert found.entropy.dtype == found.mean.dtype == torch.float32
    uncertainty.check_particles(name, found, rtol=1e-4)


def test_draws():
    torch.manual_seed(0)
    found = prediction("StudentT")
    quantiles = found.quantile(LEVELS.tolist())
    law = uncertainty.CASES["StudentT"].scipy(uncertainty.LOCATIONS)
    check_levels(np.stack([law.cdf(value).mean(0) for value in quantiles.numpy()]))
    check_draws(found.sample(20_000).numpy(), quantiles.numpy())
    assert found.sample(3).shape == found.sample(3).shape == (3, 3)
    narrow = SampledPrediction("y", dist.Normal(LOCATIONS, 1e-9))
    draws = narrow.sample(12)  # of one particle in all elements
    owners = (draws[:, None] - LOCATIONS).abs().argmin(1)
    assert (owners == owners[:, :1]).all()
    assert sorted(torch.bincount(owners[:, 0]).tolist()) == [2, 2, 2, 3, 3]


def test_classes():
    logits = torch.as_tensor(np.log(uncertainty.class_draws(64)))
    found = SampledPrediction("y", dist.Categorical(logits=logits))
    probs = logits.exp()
    torch.testing.assert_close(found.probs, probs.mean(0))
    torch.testing.assert_close(found.variance, found.mean * (1 - found.mean))
    torch.testing.assert_close(found.epistemic_variance, probs.var(0, correction=0))
    exact = uncertainty.class_information(probs.numpy())
    np.testing.assert_allclose(found.mutual_information, exact, rtol=1e-9)
    torch.testing.assert_close(found.entropy, -(found.mean * found.mean.log()).sum(-1))
    torch.testing.assert_close(found.variation_ratio, 1 - found.mean.amax(-1))
    ends = np.quantile(probs, [0.1, 0.9], axis=0, method="hazen")
    np.testing.assert_allclose(found.credible_interval(0.8), ends)
    classes = torch.tensor([0, 2])
    torch.testing.assert_close(found.log_prob(classes).exp(), probs.mean(0)[[0, 1], classes])
    with pytest.raises(UnsupportedMoments, match="no order"):
        found.quantile(0.5)


def test_narrow_particles_far_from_each_other():
    """Their entropy is that of one, plus that of the choice."""
    fn = dist.Normal(torch.arange(40.0)[:, None], torch.tensor([1e-3, 1e-6]))
    found = SampledPrediction("y", fn)
    one = dist.Normal(0.0, torch.tensor([1e-3, 1e-6])).entropy()
    torch.testing.assert_close(found.entropy, one + math.log(40), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.mutual_information, torch.full((2,), math.log(40)))
    counts = SampledPrediction("y", dist.Poisson(torch.tensor([1.0, 1.0, 1000.0])))
    each = [scipy.stats.poisson(rate).entropy() for rate in (1.0, 1000.0)]
    choice = -math.log(1 / 3) / 3 - 2 / 3 * math.log(2 / 3)
    exact = 2 / 3 * each[0] + each[1] / 3 + choice
    np.testing.assert_allclose(counts.entropy, exact, rtol=1e-6)
    np.testing.assert_allclose(counts.mutual_information, choice, rtol=1e-6)


def test_events_expansions_and_vectors():
    fn = dist.Normal(LOCATIONS, 0.5).to_event(1)
    found, alone = SampledPrediction("y", fn), prediction("Normal")
    torch.testing.assert_close(found.entropy, alone.entropy.sum())
    value = torch.ones(2, 3)
    exact = fn.log_prob(value[:, None]).logsumexp(-1) - math.log(uncertainty.K)
    torch.testing.assert_close(found.log_prob(value), exact)
    same = SampledPrediction("y", dist.Normal(0.0, 1.0).expand([4, 2]))
    torch.testing.assert_close(same.mutual_information, torch.zeros(2), atol=1e-7, rtol=0)
    assert same.quantile(0.5).shape == same.epistemic_variance.shape == (2,)
    vectors = SampledPrediction("y", dist.MultivariateNormal(LOCATIONS, torch.eye(3)))
    normals = SampledPrediction("y", dist.Normal(LOCATIONS, 1.0))
    torch.testing.assert_close(vectors.quantile(0.2), normals.quantile(0.2))
    assert vectors.sample(7).shape == (7, 3)
    with pytest.raises(UnsupportedMoments, match="mixture of MultivariateNormals"):
        _ = vectors.entropy


def test_one_particle_is_a_certain_prediction():
    found = SampledPrediction("y", dist.Gamma(2.0, torch.ones(1, 2)))
    certain = Prediction("y", dist.Gamma(2.0, torch.ones(2)))
    torch.testing.assert_close(found.entropy, certain.entropy)
    torch.testing.assert_close(found.mutual_information, torch.zeros(2), atol=1e-7, rtol=0)
    low, high = found.credible_interval(0.5)
    assert torch.equal(low, high)


def test_what_is_no_mixture_is_refused():
    for fn in (dist.Normal(0.0, 1.0), dist.Normal(latent(), 1.0)):
        with pytest.raises(ValueError, match="'y': a SampledPrediction is of certain parameters"):
            SampledPrediction("y", fn)
    with pytest.raises(ValueError, match="positive integer"):
        prediction("Normal").sample(0)


def test_a_covariance_that_all_rows_share():
    """As many particles as rows are not taken for rows."""

    def model(x, y=None):
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            noise = dist.MultivariateNormal(x, scale_tril=scale * torch.eye(2))
            return pyro.sample("obs", noise, obs=y)

    x, guide = torch.randn(5, 2), DVIGuide(model, init_scale=1.0)
    guide(x, x)
    for particles in (5, 3):
        found = predict(model, guide, x, propagation="sampled", num_particles=particles)["obs"]
        variances = found.aleatoric_variance
        torch.testing.assert_close(variances, variances[:1, :1].expand(5, 2))
        assert torch.isfinite(found.log_prob(x)).all()
