"""Entropy, mutual information, variation ratio and credible intervals of predictions."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from moment_calculus.values import Gaussian, Opaque, Spread
from moment_calculus.values.propagation import Propagation
from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    MomentTensor,
    Prediction,
    UnsupportedMoments,
    predict,
)
from tests.checks import uncertainty
from tests.oracles.pyro_samples import train
from tests.pyro import models
from tests.pyro.likelihoods.cases import CASES as ALL
from tests.pyro.likelihoods.test_likelihoods import MEAN, VARIANCE, latent

pytestmark = pytest.mark.usefixtures("double_precision")


def prediction(name, f=None):
    f = latent() if f is None else f
    return Prediction("y", uncertainty.CASES[name].host(dist, torch, f))


@pytest.mark.parametrize("name", uncertainty.CASES)
def test_against_quadrature(name):
    uncertainty.check_uncertainty(name, prediction(name))


@pytest.mark.parametrize("name", ["Normal, scale", "StudentT", "Poisson", "Bernoulli"])
def test_single_precision(name):
    torch.set_default_dtype(torch.float32)
    found = prediction(name, latent(mean=MEAN.float(), variance=VARIANCE.float()))
    assert found.entropy.dtype == found.credible_interval(0.5)[0].dtype == torch.float32
    uncertainty.check_uncertainty(name, found, rtol=1e-4)


def correlated():
    """Logits of three classes with a covariance."""
    mean, root = map(torch.as_tensor, (uncertainty.LOGITS, uncertainty.ROOT))
    covariance = (root @ root.T).expand(2, 3, 3)
    spread = Spread(covariance.diagonal(dim1=-2, dim2=-1), covariance)
    value = Gaussian(mean, spread, Opaque(), axis=-1, propagation=Propagation(covariance="full"))
    return MomentTensor(value)


def test_classes():
    uncertainty.check_classes(Prediction("y", dist.Categorical(logits=correlated())))
    uncertainty.check_ordered(prediction_of_all("OrderedLogistic"))


def prediction_of_all(name):
    return Prediction("y", ALL[name][0](latent()))


def test_two_heads():
    """A location and the logarithm of a scale that are independent, against nested sums."""
    found = Prediction("y", dist.Normal(latent(), torch.exp(latent("g", -MEAN, VARIANCE / 4))))
    g = -MEAN + VARIANCE.sqrt() / 2 * torch.as_tensor(uncertainty.Z)[:, None]
    weights = torch.as_tensor(uncertainty.WEIGHTS)[:, None]
    y = 0.02 * torch.sinh(torch.as_tensor(uncertainty.LINE)[:, None, None])
    steps = (y**2 + 0.02**2).sqrt()[:, 0] * (uncertainty.LINE[1] - uncertainty.LINE[0])
    density = weights * dist.Normal(MEAN, (VARIANCE + torch.exp(2 * g)).sqrt()).log_prob(y).exp()
    density = density.sum(1)
    entropy = -(steps * torch.xlogy(density, density)).sum(0)
    given = 0.5 * math.log(2 * math.pi * math.e) - MEAN
    torch.testing.assert_close(found.entropy, entropy, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found.mutual_information, entropy - given, rtol=1e-7, atol=1e-7)


def test_a_function_of_two_gaussians_has_a_credible_interval():
    f, g = latent(), latent("g", MEAN, VARIANCE / 4)
    found = Prediction("y", dist.Gamma(torch.exp(f), torch.exp(g)))
    law = scipy.stats.norm(0 * MEAN, (VARIANCE * 1.25).sqrt())  # of the mean's logarithm, f − g
    for end, level in zip(found.credible_interval(0.9), (0.05, 0.95), strict=True):
        np.testing.assert_allclose(law.cdf(end.log()), level, atol=2e-3)


def test_variation_ratio_of_an_outcome():
    found = prediction("Bernoulli")
    torch.testing.assert_close(found.variation_ratio, torch.minimum(found.mean, 1 - found.mean))


def test_components_of_a_vector():
    mean, root = torch.tensor([0.3, -1.0]), torch.tensor([[1.0, 0.0], [0.5, 0.2]])
    certain = dist.MultivariateNormal(mean, scale_tril=root)
    found = Prediction("y", certain)
    torch.testing.assert_close(found.entropy, certain.entropy())
    assert found.mutual_information.shape == ()
    assert found.mutual_information < 1e-12
    low, high = found.credible_interval(0.9)
    torch.testing.assert_close(low, high)


def test_events_sum_over_their_elements():
    found = Prediction("y", dist.Normal(latent(), 0.5).expand([2, 3]).to_event(1))
    one = prediction("Normal")
    torch.testing.assert_close(found.entropy, one.entropy.sum().expand(2))
    torch.testing.assert_close(found.mutual_information, one.mutual_information.sum().expand(2))
    assert found.credible_interval(0.5)[0].shape == (2, 3)


def test_extreme_probabilities_and_variances():
    sure = Prediction("y", dist.Bernoulli(torch.tensor([0.0, 1.0, 0.5])))
    torch.testing.assert_close(sure.entropy, torch.tensor([0.0, 0.0, math.log(2)]))
    torch.testing.assert_close(sure.mutual_information, torch.zeros(3))
    torch.testing.assert_close(sure.variation_ratio, torch.tensor([0.0, 0.0, 0.5]))
    one = Prediction("y", dist.Categorical(torch.tensor([1.0, 0.0, 0.0])))
    assert one.entropy == one.mutual_information == one.variation_ratio == 0
    tiny = Prediction("y", dist.Normal(latent(variance=torch.full((3,), 1e-20)), 1e-8))
    torch.testing.assert_close(tiny.mutual_information, torch.full((3,), 0.5 * math.log1p(1e-4)))
    huge = latent(mean=torch.tensor([-800.0, 0.0, 800.0]), variance=torch.tensor([1.0, 1e6, 1.0]))
    found = Prediction("y", dist.Bernoulli(logits=huge))
    exact = torch.tensor([0.0, math.log(2), 0.0])
    torch.testing.assert_close(found.entropy, exact, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(found.mutual_information, exact, atol=3e-3, rtol=0)
    heavy = Prediction("y", dist.Cauchy(torch.zeros(2), 2.0))
    torch.testing.assert_close(heavy.entropy, torch.full((2,), math.log(8 * math.pi)))
    assert heavy.credible_interval(0.5)[0].isnan().all()


class Plain(dist.Gumbel):
    """A distribution whose entropy the host does not know."""

    def entropy(self):
        raise NotImplementedError


def test_what_is_not_known_is_refused():
    for what in ("entropy", "mutual_information"):
        with pytest.raises(UnsupportedMoments, match="'y': no predictive entropy of a VonMises"):
            getattr(prediction_of_all("VonMises"), what)
    with pytest.raises(UnsupportedMoments, match="entropy given its parameters is not known"):
        _ = Prediction("y", Plain(latent(), 1.0)).mutual_information
    for name in ("Poisson", "Normal"):
        with pytest.raises(UnsupportedMoments, match=f"a {name} has no classes, and so no var"):
            _ = prediction(name).variation_ratio
    for mass in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            prediction("Normal").credible_interval(mass)


def test_counts_beyond_a_largest_one():
    found = Prediction("y", dist.Binomial(5, probs=torch.tensor([0.3, 0.4])))
    exact = scipy.stats.binom(5, [0.3, 0.4])
    np.testing.assert_array_equal(found.quantile(0.9), exact.ppf(0.9))
    np.testing.assert_allclose(found.entropy, exact.entropy(), rtol=1e-6)
    assert Prediction("y", dist.Bernoulli(torch.tensor(0.7))).quantile(0.5) == 1


def test_a_network():
    x, y = models.data()
    model, guide = models.Heteroscedastic(), DVIGuide()
    train(model, guide, DeterministicELBO(), x, y, steps=60)
    found = predict(model, guide, x)["obs"]
    assert not found.entropy.requires_grad
    draws = found.sample(1000)
    surprise = -found.log_prob(draws)
    error = surprise.std(0) / math.sqrt(1000)
    assert ((found.entropy - surprise.mean(0)).abs() < 5 * error).all()
    assert (found.mutual_information > 0).all()
    inner, outer = found.credible_interval(0.9), found.interval(0.9)
    assert ((inner[0] > outer[0]) & (inner[1] < outer[1])).all()
