"""Closed-form predictions against samples of the same posterior."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments, predict
from tests.oracles.pyro_samples import train
from tests.pyro import models

X, Y = models.data()

SAMPLES = 4000


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
