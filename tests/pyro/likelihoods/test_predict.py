"""Closed-form predictions against samples of the same posterior."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    UnsupportedMoments,
    predict,
    predictive_moments,
)
from pyro_moments.likelihoods.expected import PREDICTIVES
from tests.oracles.pyro_samples import train
from tests.pyro import models

X, Y = models.data()

SAMPLES = 4000


def test_log_density_is_exact_for_linear_regression():
    guide = DVIGuide(init_scale=0.3)
    DeterministicELBO().loss(models.linear_regression, guide, X, Y)
    prediction = predict(models.linear_regression, guide, X)["obs"]
    variance = 0.3**2 * (X**2).sum(-1) + 0.3**2 + 0.3**2
    mean = X @ guide.median()["w"] + guide.median()["b"]
    assert torch.allclose(prediction.variance, variance)
    assert torch.allclose(prediction.mean, mean)
    expected = dist.Normal(mean, variance.sqrt()).log_prob(Y)
    assert torch.allclose(prediction.log_prob(Y), expected, atol=1e-5)


def test_new_inputs_of_another_size():
    model, guide = models.sequential(), DVIGuide()
    DeterministicELBO().loss(model, guide, X, Y)
    assert predict(model, guide, X[:3])["obs"].mean.shape == (3,)


def test_every_observable_site_is_predicted():
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("first", dist.Normal(x @ w, 0.5), obs=y)
            pyro.sample("second", dist.Normal(2 * (x @ w), 0.5), obs=y)

    guide = DVIGuide()
    DeterministicELBO().loss(model, guide, X, Y)
    first, second = (predict(model, guide, X)[name] for name in ("first", "second"))
    assert torch.allclose(second.mean, 2 * first.mean)
    assert torch.allclose(second.epistemic_variance, 4 * first.epistemic_variance)


def test_probabilities_of_classes_match_samples():
    classes = (Y > 0).long() + (Y > 1).long()
    model, guide = models.Classifier(), DVIGuide()
    train(model, guide, DeterministicELBO(), X, classes, steps=80)
    prediction = predict(model, guide, X)["obs"]
    draws = guide.sample_posterior(SAMPLES)
    fns = [
        poutine.trace(poutine.condition(model, data={k: v[i] for k, v in draws.items()}))
        .get_trace(X)
        .nodes["obs"]["fn"]
        for i in range(0, SAMPLES, 4)
    ]
    probabilities = torch.stack([fn.probs for fn in fns])
    mean = probabilities.mean(0)
    assert torch.allclose(prediction.mean.sum(-1), torch.ones(models.POINTS))
    assert torch.allclose(prediction.mean, mean, atol=0.03)
    assert torch.allclose(prediction.variance, mean * (1 - mean), atol=0.03)
    assert torch.allclose(prediction.epistemic_variance, probabilities.var(0), atol=0.04)
    chosen = prediction.mean.gather(-1, classes[:, None])[:, 0]
    assert torch.allclose(prediction.log_prob(classes), chosen.log(), atol=1e-5)


def test_no_predictive_moments_names_the_candidates():
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            df = torch.tensor(4.0)
            pyro.sample("obs", dist.MultivariateStudentT(df, x * w, torch.eye(3)), obs=y)

    x, _ = models.data()
    candidates = r"'obs'.*MultivariateStudentT.*Normal, .*Categorical"
    guide = DVIGuide(model)
    guide(x, x)
    with pytest.raises(UnsupportedMoments, match=candidates) as refusal:
        predict(model, guide, x, x)
    assert "@pyro_moments.predictive_moments" in str(refusal.value)


def test_deterministic_sites_are_given_as_moments():
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        mean = pyro.deterministic("mean", x @ w)
        noise = pyro.sample("noise", dist.Gamma(2.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(mean, noise), obs=y)

    guide = DVIGuide()
    DeterministicELBO().loss(model, guide, X, Y)
    prediction = predict(model, guide, X)
    assert set(prediction) == {"mean", "obs"}
    assert torch.equal(prediction["mean"].mean, prediction["obs"].mean)
    assert torch.equal(prediction["mean"].variance, prediction["obs"].epistemic_variance)


def test_registered_predictive_moments_serve():
    class Shifted(dist.MultivariateNormal):
        """A distribution of a user's own."""

    @predictive_moments(Shifted)
    def shifted(fn):
        mean = fn.loc.value.mean
        return mean + 1, 2 * torch.ones_like(mean), 3 * torch.ones_like(mean), lambda value: value

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", Shifted(x * w, torch.eye(3)), obs=y)

    x, _ = models.data()
    guide = DVIGuide(model)
    guide(x, x)
    try:
        prediction = predict(model, guide, x, x)["obs"]
    finally:
        PREDICTIVES.pop(Shifted)
    assert torch.allclose(prediction.mean, x * guide.median()["w"] + 1)
    assert torch.allclose(prediction.variance, torch.tensor(5.0))


def of_two(fn):
    def model(y=None):
        a, b = (pyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in "ab")
        with pyro.plate("data", 3):
            pyro.sample("obs", fn(a, b), obs=y)

    return model


@pytest.mark.filterwarnings("error")
def test_a_confined_parameter_that_was_matched_by_a_gaussian_is_refused():
    """Its quadrature would go through negative rates, where 1/rate is any number."""
    model, guide = of_two(lambda a, b: dist.Gumbel(0.0, 1.5 * a - b)), DVIGuide(init_scale=0.5)
    with pytest.raises(UnsupportedMoments, match=r"Gaussian|sqrt|log of"):
        DeterministicELBO().loss(model, guide, torch.ones(3))
    with pytest.raises(UnsupportedMoments, match="is a Gaussian value"):
        predict(model, guide)


@pytest.mark.parametrize(
    "family",
    [
        lambda a, b: dist.ZeroInflatedPoisson(a * (1 + b), gate=torch.tensor(0.2)),
        lambda a, b: dist.Gumbel(0.0, a + b),
    ],
)
def test_products_and_sums_of_positive_functions_are_integrated_over_both(family):
    """Parameters that a Gaussian with their moments would make negative; beside draws."""
    model = of_two(family)
    guide = DVIGuide(init_scale=0.5)
    loss = DeterministicELBO().loss(model, guide, torch.ones(3))
    drawn = pyro.infer.Trace_ELBO(20_000, max_plate_nesting=1, vectorize_particles=True)
    assert loss == pytest.approx(drawn.loss(model, guide, torch.ones(3)), abs=0.05)


@pytest.mark.parametrize("options", [{}, {"propagation": "sampled", "num_particles": 2}])
def test_a_distribution_without_a_mean_is_refused(options):
    def model(x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 3):
            shift = dist.transforms.AffineTransform(1.0, 2.0)
            shifted = dist.TransformedDistribution(dist.Normal(x * weight, 1.0), [shift])
            pyro.sample("obs", shifted, obs=y)

    x, guide = torch.ones(3), DVIGuide(model)
    guide(x, x)
    with pytest.raises(UnsupportedMoments, match="no predictive moments for Transformed"):
        predict(model, guide, x, **options)
