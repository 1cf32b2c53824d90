"""Predictive distribution functions, against exact mixtures and the quantiles that invert them."""

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from pyro_moments import Prediction, SampledPrediction, UnsupportedMoments
from tests.checks.predictions import check_distribution_function
from tests.pyro.likelihoods.cases import CUTS
from tests.pyro.likelihoods.test_likelihoods import MEAN, VARIANCE, latent, points
from tests.pyro.likelihoods.test_quantiles_and_draws import prediction

pytestmark = pytest.mark.usefixtures("double_precision")


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
