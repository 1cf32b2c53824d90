"""Quantiles, intervals, class probabilities and draws of predictions, against exact mixtures."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    Prediction,
    UnsupportedMoments,
    predict,
    predictive_moments,
)
from pyro_moments.likelihoods.expected import PREDICTIVES
from tests.checks.predictions import (
    LEVELS,
    check_distribution_function,
    check_draws,
    check_frequencies,
    check_levels,
    check_smallest,
)
from tests.oracles.pyro_samples import posterior_predictive, train
from tests.pyro import models
from tests.pyro.likelihoods.cases import CASES, CUTS
from tests.pyro.likelihoods.test_likelihoods import MEAN, VARIANCE, latent, points

DRAWS = 20_000
NO_QUANTILES = ("VonMises", "OrderedLogistic", "transformed")
DISCRETE = [name for name in CASES if name.split(",")[0].endswith(("oisson", "omial", "oulli"))]
DISCRETE += ["Geometric"]
CONTINUOUS = [name for name in CASES if name not in (*DISCRETE, *NO_QUANTILES)]

pytestmark = pytest.mark.usefixtures("double_precision")


def prediction(name):
    return Prediction("y", CASES[name][0](latent()))


def below(fn, value):
    """The distribution function; torch has none of Student's distribution."""
    if isinstance(fn, dist.StudentT):
        return torch.as_tensor(scipy.stats.t(fn.df, fn.loc, fn.scale).cdf(value))
    return fn.cdf(value)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_cdf_and_draws_of_continuous_distributions(name):
    torch.manual_seed(0)
    found = prediction(name)
    quantiles = found.quantile(LEVELS.tolist())
    f, weights = points()
    certain = CASES[name][0](f)
    if name == "Gumbel":  # which is a function of a uniform variable, zero far from the mean
        certain._validate_args = certain.base_dist._validate_args = False
    mixed = [(weights * below(certain, value)).sum(0) for value in quantiles]
    check_levels(torch.stack(mixed).numpy())
    np.testing.assert_allclose(found.cdf(quantiles), torch.stack(mixed), atol=2e-6)
    draws = found.sample(DRAWS).numpy()
    check_draws(draws, quantiles.numpy())
    check_distribution_function(found.cdf, quantiles[1] + 0.1, draws)


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_cdf_and_draws_of_counts(name):
    torch.manual_seed(0)
    found = prediction(name)
    f, weights = points()
    certain = CASES[name][0](f)
    last = getattr(certain.support, "upper_bound", 1.0 if "Bernoulli" in name else 150.0)
    counts = torch.arange(int(torch.as_tensor(last).max()) + 1.0)
    probabilities = (weights * certain.log_prob(counts[:, None, None]).exp()).sum(1)
    cumulative = probabilities.cumsum(0)
    check_smallest(found.quantile(LEVELS.tolist()).numpy(), cumulative.numpy())
    draws = found.sample(DRAWS)
    assert draws.shape == (DRAWS, 3)
    check_frequencies(draws.numpy(), probabilities[:6].numpy())
    wide = counts[:10, None].expand(-1, 3)
    for shift in (0.0, 0.7):
        np.testing.assert_allclose(found.cdf(wide + shift), cumulative[:10], atol=1e-8)
    check_distribution_function(found.cdf, counts[1].expand(3), draws[:4000].numpy())


def test_a_gaussian_prediction_is_in_closed_form():
    found = Prediction("y", dist.Normal(latent(), 0.5))
    exact = scipy.stats.norm(MEAN, (VARIANCE + 0.25).sqrt())
    np.testing.assert_allclose(found.quantile(0.3), exact.ppf(0.3), rtol=1e-12)
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(lower, exact.ppf(0.05), rtol=1e-12)
    np.testing.assert_allclose(upper, exact.ppf(0.95), rtol=1e-12)
    assert found.quantile([0.1, 0.5]).shape == (2, 3)
    assert found.sample(7).shape == (7, 3)


def test_expansions_events_and_certain_distributions():
    wide = Prediction("y", dist.Normal(latent(), 0.5).expand([2, 3]).to_event(1))
    assert wide.sample(5).shape == (5, 2, 3)
    half = Prediction("y", dist.Beta(torch.exp(latent()), 2.0))  # stacked from both
    assert half.sample(5).shape == (5, 3)
    assert wide.quantile(0.1).shape[-1] == 3
    certain = Prediction("y", dist.Poisson(torch.full((2,), 3.0)))
    assert certain.quantile([0.5, 0.99]).tolist() == [[3.0, 3.0], [8.0, 8.0]]
    assert certain.sample(5).shape == (5, 2)
    certain = Prediction("y", dist.StudentT(4.0, torch.zeros(2), 2.0))
    exact = scipy.stats.t(4.0, 0.0, 2.0).ppf(0.9)
    np.testing.assert_allclose(certain.quantile(0.9), [exact, exact], rtol=1e-9)


def test_components_of_a_vector():
    mean, root = torch.tensor([0.3, -1.0]), torch.tensor([[1.0, 0.0], [0.5, 0.2]])
    found = Prediction("y", dist.MultivariateNormal(mean, scale_tril=root))
    exact = scipy.stats.norm(mean, (root @ root.T).diagonal().sqrt()).ppf(0.2)
    np.testing.assert_allclose(found.quantile(0.2), exact)
    torch.manual_seed(0)
    draws = found.sample(DRAWS)
    np.testing.assert_allclose(np.cov(draws.T), root @ root.T, atol=0.05)


def test_probabilities_of_classes():
    f, weights = points()
    probs = (weights * torch.sigmoid(f)).sum(0)
    np.testing.assert_allclose(prediction("Bernoulli, logits").probs, probs, rtol=1e-8)
    np.testing.assert_allclose(prediction("Binomial, logits").probs, probs, rtol=1e-8)
    found = prediction("OrderedLogistic")
    expected = (weights[..., None] * dist.OrderedLogistic(f, CUTS).probs).sum(0)
    np.testing.assert_allclose(found.probs, expected, rtol=1e-6)
    check_smallest(found.quantile(LEVELS.tolist()).numpy(), expected.cumsum(-1).T.numpy())
    torch.manual_seed(0)
    check_frequencies(found.sample(DRAWS).numpy(), expected.T.numpy())


def test_what_has_no_quantiles_or_probabilities_says_so():
    with pytest.raises(
        UnsupportedMoments, match=r"'y': no predictive quantiles of a VonMises"
    ) as e:
        prediction("VonMises").quantile(0.5)
    assert "sample" in e.value.remedy
    classes = Prediction("y", dist.Categorical(probs=torch.tensor([0.2, 0.8])))
    with pytest.raises(UnsupportedMoments, match="no order") as e:
        classes.quantile(0.5)
    assert "probs" in e.value.remedy
    for name in ("Poisson, exp", "Normal, nonlinear"):
        with pytest.raises(UnsupportedMoments, match=r"a (Poisson|Normal) has no classes"):
            _ = prediction(name).probs
    normal = prediction("Normal, nonlinear")
    for level in (0.0, 1.0, [0.5, 2.0], math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            normal.quantile(level)
        with pytest.raises(ValueError, match=r"between 0 and 1|truth value|not supported"):
            normal.interval(level[1] if isinstance(level, list) else level)
    for count in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            normal.sample(count)


def test_rules_of_a_users_own_may_give_a_distribution():
    class Shifted(dist.MultivariateNormal):
        """A distribution of a user's own."""

    fn = Shifted(torch.zeros(2), torch.eye(2))
    parts = torch.ones(2), torch.zeros(2), torch.ones(2)
    try:
        predictive_moments(Shifted)(lambda fn: (*parts, lambda value: value))
        found = Prediction("y", fn)
        for refused in (lambda: found.quantile(0.5), lambda: _own(found).sample(2)):
            with pytest.raises(UnsupportedMoments, match=r"of a Shifted|come without draws"):
                refused()
        normal = dist.MultivariateNormal(parts[0], torch.eye(2))
        predictive_moments(Shifted)(lambda fn: (*parts, normal))
        found = Prediction("y", fn)
        assert found.sample(4).shape == (4, 2)
        assert found.log_prob(torch.ones(2)) == normal.log_prob(torch.ones(2))
    finally:
        PREDICTIVES.pop(Shifted)


def _own(found):
    """The prediction of a distribution with random parameters."""
    found._base = dist.Normal(latent(), 1.0)
    return found


@pytest.mark.parametrize("df", [0.7, 1.0, 1.5, 2.0, 3.0])
def test_moments_that_do_not_exist_are_not_made_up(df):
    found = Prediction("y", dist.StudentT(df, latent(), 0.5))
    assert found.mean.isnan().all() == (df <= 1)
    assert found.aleatoric_variance.isinf().all() == (df <= 2)
    np.testing.assert_allclose(found.epistemic_variance, VARIANCE, rtol=1e-6)
    assert found.variance.isinf().all() == (df <= 2)
    lower, upper = found.interval(0.5)
    assert (lower < upper).all()


def test_moments_and_intervals_of_a_network_match_draws_of_the_host():
    x, y = models.data()
    model, guide = models.Heteroscedastic(), DVIGuide()
    train(model, guide, DeterministicELBO(), x, y, steps=80)
    found = predict(model, guide, x)["obs"]
    samples = posterior_predictive(model, guide, x, samples=4000)
    error = samples.std(0) / math.sqrt(4000)
    assert ((found.mean - samples.mean(0)).abs() < 5 * error).all()
    assert torch.allclose(found.variance, samples.var(0), rtol=0.15)
    assert (found.epistemic_variance > 0).all()
    assert (found.aleatoric_variance > 0).all()
    lower, upper = found.interval(0.9)
    assert not lower.requires_grad
    inside = ((samples > lower) & (samples < upper)).double().mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=0.04)
    np.testing.assert_allclose(inside.mean(), 0.9, atol=0.01)
    torch.manual_seed(0)
    own = found.sample(4000)
    np.testing.assert_allclose(own.mean(0), samples.mean(0), atol=0.2)
    inside = ((own > lower) & (own < upper)).double().mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=5 * math.sqrt(0.09 / 4000))


def test_draws_follow_the_global_generator():
    found = prediction("Poisson, exp")
    draws = []
    for _ in range(2):
        pyro.set_rng_seed(3)
        draws.append(found.sample(6))
    assert torch.equal(*draws)
    assert not torch.equal(found.sample(6), draws[0])
