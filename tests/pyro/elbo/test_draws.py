"""A model that draws random numbers which are no site is refused."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal, AutoNormalMessenger
from torch import nn

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    Moments,
    UnsupportedMoments,
    predict,
    propagate,
)

GUIDES = [lambda model: DVIGuide(), AutoNormal, AutoNormalMessenger]
X, Y = torch.linspace(-1, 1, 30).reshape(10, 3), torch.linspace(0, 1, 10)


def regression(change, **plate):
    """A linear regression on inputs that are changed by a function."""

    def model():
        weights = pyro.sample("weights", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", 10, **plate) as rows:
            pyro.sample("obs", dist.Normal(change(X[rows]) @ weights, 1.0), obs=Y[rows])

    return model


def with_parameters(x):
    """Whose first values are drawn in every run."""
    return x * pyro.param("a", torch.randn(3)) + pyro.param("b", lambda: torch.randn(()))


def with_module(x):
    layer = nn.Linear(3, 3)
    return pyro.module("layer", layer, update_module_params=True)(x)


SILENT = {
    "multinomial": lambda x: x * torch.multinomial(torch.full((3, 3), 0.5), 1)[:, 0],
    "rand_like": lambda x: x + torch.rand_like(x),
    "normal_": lambda x: torch.empty(3).normal_() + x,
    "normal": lambda x: x + dist.Normal(0.0, 1.0).sample((3,)),
    "randperm": lambda x: x[torch.randperm(len(x))],
}


def refusal(name, words, compute, *args):
    with pytest.raises(UnsupportedMoments, match=words) as raised:
        compute(*args)
    assert raised.value.operation.endswith(name)
    assert "test_draws.py" in raised.value.location
    return raised.value


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("plate", [{}, {"subsample_size": 4}])
@pytest.mark.parametrize("name", SILENT)
def test_silent_draws_are_refused(name, plate, guide):
    model = regression(SILENT[name], **plate)
    found = refusal(name, "belong to no site", DeterministicELBO().loss, model, guide(model))
    assert "pyro.sample" in found.remedy


@pytest.mark.parametrize("plate", [{}, {"subsample_size": 4}])
@pytest.mark.parametrize("name", SILENT)
def test_silent_draws_are_refused_in_predictions(name, plate):
    guide = DVIGuide(regression(lambda x: x, **plate))
    guide()
    model = regression(SILENT[name], **plate)
    refusal(name, "its predictions would be random", predict, model, guide)


def test_predictions_of_models_that_account_for_their_draws():
    for change in (nn.Dropout(0.3).eval(), nn.Dropout(0.3), with_parameters, with_module):
        guide = DVIGuide(regression(change))
        guide()
        first, second = (predict(regression(change), guide)["obs"].mean for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", SILENT)
def test_silent_draws_are_refused_in_propagation(name):
    noisy = Moments(torch.zeros(10, 3), variance=torch.ones(10, 3))
    words, noise = "the function draws random numbers", SILENT[name]
    refusal(name, words, propagate, lambda h: h + noise(X), noisy)
    propagate(lambda h: h + nn.Linear(3, 3)(X), noisy)  # draws the values it begins with


def before_a_parameter(x):
    return nn.Dropout(0.3)(x) * pyro.param("a", torch.ones(3))


ACCOUNTED = (nn.Dropout(0.3).eval(), nn.Dropout(0.3), before_a_parameter)
ACCOUNTED += (with_parameters, with_module)


@pytest.mark.parametrize("guide", GUIDES)
def test_what_accounts_for_its_draws_is_served(guide):
    for change in ACCOUNTED:
        model = regression(change)
        posterior, elbo = guide(model), DeterministicELBO()
        assert elbo.loss(model, posterior) == elbo.loss(model, posterior)
    model = regression(lambda x: x, subsample_size=4)
    posterior, elbo = guide(model), DeterministicELBO()
    assert len({elbo.loss(model, posterior) for _ in range(5)}) > 1


def test_sites_are_drawn():
    def model():
        scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
        centre = pyro.sample("centre", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 10, subsample_size=4) as rows:
            pyro.sample("obs", dist.Normal(centre, scale), obs=Y[rows])

    elbo = DeterministicELBO(sample_sites=["scale"], num_particles=2)
    assert len({elbo.loss(model, DVIGuide()) for _ in range(3)}) == 3
