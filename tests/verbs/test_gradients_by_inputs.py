"""Predictions of Pyro have gradients by their inputs, where these require them."""

import pytest
import torch

from tests.fitting.models import fresh

FAMILIES = {
    "normal": lambda dist, out: dist.Normal(out[:, 0], torch.exp(0.3 * out[:, 1])),
    "bernoulli": lambda dist, out: dist.Bernoulli(logits=out[:, 0]),
    "poisson": lambda dist, out: dist.Poisson(torch.exp(0.5 * out[:, 0])),
    "classes": lambda dist, out: dist.Categorical(logits=out),
}
QUESTIONS = {
    "variance": lambda site, y: site.variance,
    "std": lambda site, y: site.std,
    "log_prob": lambda site, y: site.log_prob(y),
    "entropy": lambda site, y: site.entropy,
    "mutual_information": lambda site, y: site.mutual_information,
}


def model_and_guide(family):
    """A network of the host's layers, and a guide with initial scales that matter."""
    host = fresh("pyro")

    def model(x, y=None):
        prior = host.dist.Normal(torch.zeros((), dtype=x.dtype), 1.0)
        first = host.language.sample("first", prior.expand([2, 3]).to_event(2))
        last = host.language.sample("last", prior.expand([3, 3]).to_event(2))
        out = torch.tanh(x @ first) @ last
        host.observe(x, FAMILIES[family](host.dist, out), y)

    guide = host.package.DVIGuide(init_scale=0.4)
    return host, model, guide


@pytest.fixture
def inputs():
    return torch.tensor([[0.3, -0.7], [1.1, 0.4]], dtype=torch.float64)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_finite_differences(family, inputs):
    host, model, guide = model_and_guide(family)
    y = torch.ones(2, dtype=torch.float64 if family in ("normal", "poisson") else torch.int64)
    y = y.double() if family == "bernoulli" else y
    host.package.SVI(model, guide, host.package.DeterministicELBO()).evaluate_loss(inputs, y)
    direction = torch.tensor([[0.6, 0.2], [-0.5, 0.9]], dtype=torch.float64)

    def answers(x):
        site = host.package.predict(model, guide, x)["obs"]
        return [question(site, y).sum() for question in QUESTIONS.values()]

    x = inputs.clone().requires_grad_()
    slopes = [torch.autograd.grad(part, x, retain_graph=True)[0] for part in answers(x)]
    step = 1e-4
    above, below = answers(inputs + step * direction), answers(inputs - step * direction)
    for slope, high, low in zip(slopes, above, below, strict=True):
        found, expected = (slope * direction).sum(), (high - low) / (2 * step)
        assert float(found) == pytest.approx(float(expected), rel=1e-4, abs=1e-6)


def test_quantiles_and_draws_have_no_gradient(inputs):
    host, model, guide = model_and_guide("poisson")
    x = inputs.float()
    host.package.SVI(model, guide, host.package.DeterministicELBO()).evaluate_loss(
        x, x[:, 0].round()
    )
    site = host.package.predict(model, guide, x.requires_grad_())["obs"]
    assert not site.quantile(0.9).requires_grad
    assert not site.credible_interval(0.9)[0].requires_grad
    assert not site.sample(2).requires_grad


def test_draws_of_weights_have_gradients_too(inputs):
    host, model, guide = model_and_guide("normal")
    x = inputs.float()
    host.package.SVI(model, guide, host.package.DeterministicELBO()).evaluate_loss(x, x[:, 0])
    options = {"propagation": "sampled", "num_particles": 3}
    found = host.package.predict(model, guide, x.clone().requires_grad_(), **options)["obs"]
    assert found.variance.requires_grad
    assert not host.package.predict(model, guide, x, **options)["obs"].variance.requires_grad


def test_certain_inputs_have_none(inputs):
    host, model, guide = model_and_guide("normal")
    x = inputs.float()
    host.package.SVI(model, guide, host.package.DeterministicELBO()).evaluate_loss(x, x[:, 0])
    site = host.package.predict(model, guide, x)["obs"]
    assert not site.variance.requires_grad
    assert not site.log_prob(x[:, 0]).requires_grad
    with torch.no_grad():
        inner = host.package.predict(model, guide, x.requires_grad_())["obs"]
    assert not inner.variance.requires_grad
