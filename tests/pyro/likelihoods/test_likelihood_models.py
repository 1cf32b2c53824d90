"""Likelihoods in models: ELBO and predictions of an exact posterior."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide, UnsupportedMoments, predict
from tests.oracles import quadrature as oracles
from tests.pyro import models

X, Y = models.data()

SPREAD = 0.3
CUTS = torch.tensor([-0.5, 0.7])
ROOT = torch.tensor([[0.8, 0.0], [0.5, 1.1]])

FAMILIES = {
    "Poisson": lambda f: dist.Poisson(torch.exp(f)),
    "Bernoulli": lambda f: dist.Bernoulli(logits=f),
    "probit": lambda f: dist.Bernoulli(dist.Normal(0.0, 1.0).cdf(f)),
    "Gamma": lambda f: dist.Gamma(2.0, 2.0 * torch.exp(-f)),
    "StudentT": lambda f: dist.StudentT(4.0, f, 0.5),
    "Laplace": lambda f: dist.Laplace(f, 0.5),
    "OrderedLogistic": lambda f: dist.OrderedLogistic(f, CUTS),
    "ZeroInflatedPoisson": lambda f: dist.ZeroInflatedPoisson(torch.exp(f), gate=torch.tensor(0.2)),
}


def fitted(make):
    x, _ = models.data()
    model, guide = models.regression(make), DVIGuide(init_scale=SPREAD)
    y = make(x[:, 0] - 0.5 * x[:, 1]).sample()
    DeterministicELBO().loss(model, guide, x, y)
    return model, guide, x, y


def terms(make, guide, x, y):
    """E[log p(y_n)] by quadrature over f_n."""
    z, weights = (torch.as_tensor(a, dtype=torch.float32) for a in oracles.narrow_grid(1, 1))
    f = x @ guide.median()["w"] + SPREAD * (x**2).sum(-1).sqrt() * z
    return (weights[:, None] * make(f).log_prob(y)).sum(0)


def divergence(guide):
    posterior = dist.Normal(guide.median()["w"], SPREAD)
    return torch.distributions.kl_divergence(posterior, dist.Normal(0.0, 1.0)).sum()


@pytest.mark.parametrize("name", FAMILIES)
def test_elbo_of_a_linear_model_is_exact(name):
    model, guide, x, y = fitted(FAMILIES[name])
    expected = divergence(guide) - terms(FAMILIES[name], guide, x, y).sum()
    loss = DeterministicELBO().loss(model, guide, x, y)
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    half = torch.arange(10)
    part = DeterministicELBO().loss(model, guide, x, y, half)
    scaled = divergence(guide) - 2 * terms(FAMILIES[name], guide, x, y)[:10].sum()
    assert part == pytest.approx(scaled.item(), rel=1e-4)


def classifier(x, y=None):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3, 4]).to_event(2))
    models.observe(x, dist.Categorical(logits=x @ w), y)


def test_sampled_logits_are_unbiased():
    """Draws of logits against draws of weights, with standard errors."""
    classes = (Y > 0).long() + (Y > 1).long()
    guide, draws = DVIGuide(init_scale=0.6), 4000
    elbo = DeterministicELBO(categorical="sample", categorical_draws=draws)
    actual = elbo.loss(classifier, guide, X, classes)
    weights = guide.median()["w"] + 0.6 * torch.randn(draws, 3, 4)
    log_prob = dist.Categorical(logits=X @ weights).log_prob(classes).sum(-1)
    posterior = dist.Normal(guide.median()["w"], 0.6)
    kl = torch.distributions.kl_divergence(posterior, dist.Normal(0.0, 1.0)).sum()
    # every data point has draws of its own: the error is at most that of the weights' draws
    error = log_prob.std() / math.sqrt(draws)
    assert abs(actual - (kl - log_prob.mean())) < 4 * error
    loss = elbo.differentiable_loss(classifier, guide, X, classes)
    gradients = torch.autograd.grad(loss, list(guide.parameters()))
    assert all(gradient.isfinite().all() and gradient.abs().max() > 0 for gradient in gradients)


def multivariate(x, y=None):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    mean = x @ w.mT @ torch.tensor([[1.0, 0.6], [0.0, 1.0]])
    models.observe(x, dist.MultivariateNormal(mean, scale_tril=ROOT), y)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_multivariate_normal(covariance):
    """The correlation of the components enters, also where only variances are propagated."""
    x, _ = models.data()
    y = torch.randn(len(x), 2)
    guide = DVIGuide(init_scale=SPREAD)
    loss = DeterministicELBO(covariance=covariance).loss(multivariate, guide, x, y)
    mix = torch.tensor([[1.0, 0.6], [0.0, 1.0]])
    mean = x @ guide.median()["w"].mT @ mix
    spread = SPREAD**2 * (x**2).sum(-1)[:, None, None] * (mix.mT @ mix)
    noise = ROOT @ ROOT.mT
    trace = (torch.linalg.inv(noise) * spread).sum((-2, -1))
    expected = dist.MultivariateNormal(mean, noise).log_prob(y) - 0.5 * trace
    assert loss == pytest.approx((divergence(guide) - expected.sum()).item(), rel=1e-5)
    prediction = predict(multivariate, guide, x, covariance=covariance)["obs"]
    joint = dist.MultivariateNormal(mean, noise + spread)
    assert torch.allclose(prediction.variance, joint.variance, rtol=1e-4)
    assert torch.allclose(prediction.log_prob(y), joint.log_prob(y), rtol=1e-4)


def test_multivariate_normal_over_data_is_refused():
    """Its components, one for each data point, share the weights in an unknown way."""

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        pyro.sample("obs", dist.MultivariateNormal(x @ w, torch.eye(len(x))), obs=y)

    with pytest.raises(UnsupportedMoments, match="not on the feature axis"):
        DeterministicELBO().loss(model, DVIGuide(), X, Y)


def test_factors_add_their_mean():
    def model(factor):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        if factor:
            with pyro.plate("weights", 3):
                pyro.factor("penalty", -torch.exp(w))

    guide = DVIGuide(init_scale=SPREAD)
    plain = DeterministicELBO().loss(model, guide, False)
    loss = DeterministicELBO().loss(model, guide, True)
    expected = (guide.median()["w"] + SPREAD**2 / 2).exp().sum()
    assert loss - plain == pytest.approx(expected.item(), rel=1e-5)
    assert predict(model, guide, True) == {}


def test_heteroscedastic_student_matches_samples():
    """Location and scale are two heads of one layer: their joint distribution is integrated."""

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        out = torch.tanh(x) @ w.mT
        mixed = out @ torch.tensor([[1.0, 0.5], [0.0, 0.4]])
        models.observe(x, dist.StudentT(5.0, mixed[..., 0], torch.exp(mixed[..., 1])), y)

    guide, draws = DVIGuide(init_scale=SPREAD), 20_000
    loss = DeterministicELBO().loss(model, guide, X, Y)
    weights = guide.median()["w"] + SPREAD * torch.randn(draws, 2, 3)
    mixed = torch.tanh(X) @ weights.mT @ torch.tensor([[1.0, 0.5], [0.0, 0.4]])
    log_prob = dist.StudentT(5.0, mixed[..., 0], mixed[..., 1].exp()).log_prob(Y).sum(-1)
    error = log_prob.std() / math.sqrt(draws)
    assert abs(loss - (divergence(guide) - log_prob.mean())) < 4 * error


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32])
@pytest.mark.parametrize("objective", [DeterministicELBO(), BBAlphaELBO(0.5)])
@pytest.mark.parametrize("name", ["Categorical", "OrderedLogistic"])
def test_classes_of_any_dtype(name, objective, dtype):
    """As torch's own distributions take them."""
    logits = {"Categorical": lambda f: dist.Categorical(logits=f[..., None] * ROOT[:, 1])}
    model, guide, x, y = fitted({**FAMILIES, **logits}[name])
    expected = objective.loss(model, guide, x, y)
    assert objective.loss(model, guide, x, y.to(dtype)) == expected
