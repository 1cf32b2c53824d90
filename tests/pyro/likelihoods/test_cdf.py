"""Predictive distribution functions, against exact mixtures and the quantiles that invert them."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from pyro_moments import Prediction, SampledPrediction, UnsupportedMoments
from tests.checks.predictions import LEVELS, check_distribution_function, check_levels
from tests.pyro.likelihoods.cases import CASES, CUTS
from tests.pyro.likelihoods.test_likelihoods import MEAN, VARIANCE, latent, points
from tests.pyro.likelihoods.test_quantiles_and_draws import CONTINUOUS, DISCRETE, below, prediction

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("name", CONTINUOUS)
def test_of_continuous_distributions(name):
    torch.manual_seed(0)
    found = prediction(name)
    quantiles = found.quantile(LEVELS.tolist())
    check_levels(found.cdf(quantiles).numpy())
    value, (f, weights) = found.quantile(0.3) + 0.1, points()
    certain = CASES[name][0](f)
    if name == "Gumbel":  # which is a function of a uniform variable, zero far from the mean
        certain._validate_args = certain.base_dist._validate_args = False
    exact = (weights * below(certain, value)).sum(0)
    np.testing.assert_allclose(found.cdf(value), exact, atol=2e-6)
    check_distribution_function(found.cdf, value, found.sample(20_000).numpy())


@pytest.mark.parametrize("name", DISCRETE)
def test_of_counts(name):
    torch.manual_seed(0)
    found, (f, weights) = prediction(name), points()
    certain = CASES[name][0](f)
    last = getattr(certain.support, "upper_bound", 1.0 if "Bernoulli" in name else 9.0)
    counts = torch.arange(int(torch.as_tensor(last).max()) + 1.0)
    exact = torch.stack([(weights * certain.log_prob(k).exp()).sum(0) for k in counts]).cumsum(0)
    wide = counts[:, None].expand(len(counts), 3)
    np.testing.assert_allclose(found.cdf(wide), exact, atol=1e-8)
    np.testing.assert_allclose(found.cdf(wide + 0.7), exact, atol=1e-8)
    check_distribution_function(found.cdf, counts[1].expand(3), found.sample(4000).numpy())


def test_of_ordered_classes():
    found, (f, weights) = prediction("OrderedLogistic"), points()
    exact = (weights[..., None] * dist.OrderedLogistic(f, CUTS).probs).sum(0).cumsum(-1)
    for k in range(len(CUTS) + 1):
        np.testing.assert_allclose(found.cdf(torch.full((3,), float(k))), exact[:, k], rtol=1e-6)
    check_distribution_function(found.cdf, torch.ones(3), found.sample(20_000).numpy())


def test_of_normal_distributions():
    found = Prediction("y", dist.Normal(latent(), 0.5).expand([2, 3]).to_event(1))
    exact = scipy.stats.norm(MEAN, (VARIANCE + 0.25).sqrt()).cdf(0.3)
    np.testing.assert_allclose(found.cdf(0.3), np.tile(exact, (2, 1)), rtol=1e-12)
    root = torch.tensor([[1.0, 0.0], [0.5, 0.2]])
    vector = Prediction("y", dist.MultivariateNormal(torch.zeros(2), scale_tril=root))
    exact = scipy.stats.norm(0, (root @ root.T).diagonal().sqrt()).cdf([0.1, 0.2])
    np.testing.assert_allclose(vector.cdf(torch.tensor([0.1, 0.2])), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_mixtures(dtype):
    locations = torch.tensor([[-1.0, 0.0], [0.5, 2.0], [1.0, 1.0]], dtype=dtype)
    value = torch.tensor([0.4, 1.2], dtype=dtype)
    normal = SampledPrediction("y", dist.Normal(locations, 0.5))
    exact = scipy.stats.norm(locations, 0.5).cdf(value).mean(0)
    np.testing.assert_allclose(normal.cdf(value), exact, rtol=1e-6)
    assert normal.cdf(value).dtype == dtype
    counts = SampledPrediction("y", dist.Poisson(locations.exp()))
    exact = scipy.stats.poisson(locations.exp()).cdf(value).mean(0)
    np.testing.assert_allclose(counts.cdf(value), exact, rtol=1e-5)


def test_what_has_none_says_so():
    with pytest.raises(UnsupportedMoments, match="distribution function of a VonMises") as e:
        prediction("VonMises").cdf(0.5)
    assert "sample" in e.value.remedy
    classes = Prediction("y", dist.Categorical(probs=torch.tensor([0.2, 0.8])))
    with pytest.raises(UnsupportedMoments, match="no order") as e:
        classes.cdf(0.0)
    assert "probs" in e.value.remedy
