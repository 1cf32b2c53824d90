"""Mixed precision, double precision and devices."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoDiagonalNormal, AutoNormal
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide, Moments, UnsupportedMoments, propagate
from tests.pyro import models

X, Y = models.data()

KINDS = {
    "deep": lambda: models.sequential(3),
    "tanh": lambda: models.sequential(2, nn.Tanh),
    "heteroscedastic": models.Heteroscedastic,
    "classifier": models.Classifier,
    "vector": lambda: models.linear_regression,
    "residual": models.residual,
}


def data_for(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    return X, (Y > 0).long() if kind == "classifier" else Y


def loss_and_gradients(elbo, model, guide, x, y):
    guide.zero_grad()
    value = elbo.loss_and_grads(model, guide, x, y)
    return value, torch.cat([p.grad.flatten() for p in guide.parameters()])


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_leaves_the_moments_alone(kind, covariance):
    x, y = data_for(kind)
    model, guide = KINDS[kind](), DVIGuide()
    elbo = DeterministicELBO(covariance=covariance)
    elbo.loss(model, guide, x, y)
    expected, gradients = loss_and_gradients(elbo, model, guide, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, cast = loss_and_gradients(elbo, model, guide, x, y)
        assert (torch.eye(2) @ torch.eye(2)).dtype == torch.bfloat16  # it is on, and stays on
    assert value == pytest.approx(expected, rel=2e-6)
    assert torch.allclose(cast, gradients, rtol=2e-6, atol=2e-6 * gradients.abs().max().item())


def test_certain_layers_keep_autocast_and_are_cast_up():
    class Features(pyro.nn.PyroModule):
        def __init__(self):
            super().__init__()
            self.certain = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
            self.network = models.make_bayesian(nn.Sequential(nn.Linear(3, 1)))

        def forward(self, x, y):
            features = self.certain(x)
            self.dtype = features.dtype
            mean = self.network(features).squeeze(-1)
            models.observe(x, dist.Normal(mean, 0.3), y)

    model, guide, elbo = Features(), DVIGuide(), DeterministicELBO()
    expected = elbo.loss(model, guide, X, Y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = elbo.differentiable_loss(model, guide, X, Y)
    assert model.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    assert value.item() != expected
    assert value.item() == pytest.approx(expected, rel=2e-2)


def test_autocast_leaves_propagation_alone():
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    noisy = Moments(torch.ones(4, 3), variance=torch.full((4, 3), 0.1))
    expected = propagate(network, noisy, covariance="full")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = propagate(network, noisy, covariance="full")
    assert torch.allclose(result.covariance, expected.covariance, rtol=2e-6)


@pytest.mark.parametrize("make_guide", [DVIGuide, AutoNormal, AutoDiagonalNormal])
def test_a_guide_turned_double_refines_its_loss(make_guide):
    model = models.sequential(2)
    elbo, guide = DeterministicELBO(), make_guide(model, init_scale=0.1)
    module = elbo(model, guide)
    expected = module(X, Y).item()
    module.double()
    loss = module(X.double(), Y.double())
    loss.backward()
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert all(p.grad.dtype == torch.float64 for p in guide.parameters())


def test_mixed_dtypes_behave_as_in_torch():
    """Elementwise operations promote, matrix products refuse."""
    model, guide, elbo = models.sequential(), DVIGuide(), DeterministicELBO()
    expected = elbo.loss(model, guide, X, Y)
    promoted = elbo.differentiable_loss(model, guide, X, Y.double())
    assert promoted.dtype == torch.float64
    assert promoted.item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(UnsupportedMoments, match=r"linear: .* is torch.float64.*torch.float32"):
        elbo.loss(model, guide, X.double(), Y)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", ["deep", "heteroscedastic", "classifier", "residual"])
def test_everything_stays_on_the_device_of_the_parameters(kind, covariance):
    """On the meta device a tensor that was made on the default device would be an error."""
    x, y = (array.to("meta") for array in data_for(kind))
    elbo, guide = DeterministicELBO(covariance=covariance), DVIGuide()
    with pyro.validation_enabled(False):
        with torch.device("meta"):  # for the priors in the model
            model = KINDS[kind]()
            guide.bind(model)
            guide(x, y)
        loss = elbo.differentiable_loss(model, guide, x, y)
        loss.backward()
    assert loss.device.type == "meta"
    assert all(p.grad.device.type == "meta" for p in guide.parameters())


def test_a_default_device_is_followed():
    with torch.device("meta"), pyro.validation_enabled(False):
        guide = DVIGuide()
        loss = DeterministicELBO().differentiable_loss(
            models.sequential(), guide, X.to("meta"), Y.to("meta")
        )
    assert loss.device.type == "meta"
    assert all(p.device.type == "meta" for p in guide.parameters())
