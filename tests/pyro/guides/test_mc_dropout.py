"""MCDropoutGuide follows the conventions of Pyro's guides."""

import pickle

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from torch import nn

from pyro_moments import (
    SVI,
    DeterministicELBO,
    EmpiricalBayesNormal,
    MCDropoutGuide,
    fit,
    load,
    predict,
    save,
)
from tests.pyro import models
from tests.pyro.compiled.compiling import assert_same, make, programs

P, K = 0.4, 0.6
X = torch.linspace(-1, 1, 30).reshape(10, 3)
Y = X.sum(-1).tanh()


def network():
    """An unmodified network of torch with random weights."""
    return models.Regression(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))


def by_hand(x, y=None):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand((3, 4)).to_event(2))
    b = pyro.sample("b", dist.Normal(0.0, 1.0).expand((4,)).to_event(1))
    v = pyro.sample("v", dist.Normal(0.0, 1.0).expand((4,)).to_event(1))
    s = pyro.sample("s", dist.Gamma(2.0, 2.0))
    with pyro.plate("data", len(x), subsample_size=None):
        pyro.sample("obs", dist.Normal(torch.relu(x @ w + b) @ v, s), obs=y)


TRAININGS = [
    (network, {}),
    (network, {"noise": "gaussian"}),
    (network, {"learn_p": True}),
    (lambda: by_hand, {"others": "mean_field"}),
    (lambda: by_hand, {"learn_p": True, "others": "mean_field", "noise": "dropconnect"}),
]


@pytest.mark.parametrize(("model", "options"), TRAININGS)
def test_training(model, options):
    model, guide = model(), MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    losses = [svi.step(X, Y) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert len(guide.masked) == 2
    assert set(guide.masked.values()) == {P}
    assert predict(model, guide, X)["obs"].mean.shape == (10,)
    moved = {name for name in pyro.get_param_store() if ".probs." in name}
    assert len(moved) == (2 if options.get("learn_p") else 0)
    for name in moved:
        assert 0 < pyro.param(name).item() != pytest.approx(P, abs=1e-4)


def trained(**options):
    model, guide = network(), MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    for _ in range(3):
        svi.step(X, Y)
    return model, guide


def test_predictive_of_the_host():
    """Each row has the right marginal: mean and variance over draws are the predicted ones."""
    model, guide = trained()
    draws = Predictive(model, guide=guide, num_samples=1000)(X)["obs"]
    ours = predict(model, guide, X)["obs"]
    error = 4 * (ours.variance / 1000) ** 0.5
    assert ((draws.mean(0) - ours.mean).abs() < error + 0.05 * ours.variance.sqrt()).all()
    np.testing.assert_allclose(draws.var(0), ours.variance, rtol=0.35)


def test_sites_may_be_drawn():
    """A drawn mask is that of all rows: the ELBO is the same in expectation."""
    model, guide = trained()
    drawn = DeterministicELBO(sample_sites=["network.2.weight"], num_particles=100)
    exact = DeterministicELBO().site_terms(model, guide, X, Y)
    terms = drawn.site_terms(model, guide, X, Y)
    assert terms["network.2.weight"] == pytest.approx(exact["network.2.weight"])
    assert terms["obs"] == pytest.approx(exact["obs"], rel=0.3)


def test_relaxed_masks_are_differentiable():
    _, guide = trained(learn_p=True)
    draws = guide.get_posterior()["network.0.weight"].rsample((2000,))
    slopes = torch.autograd.grad(draws.mean(), list(guide.parameters()), allow_unused=True)
    names = [n for (n, _), g in zip(guide.named_parameters(), slopes, strict=True) if g is not None]
    assert names == ["locs.network.0.weight_unconstrained", "probs.network.0.weight_unconstrained"]
    masks = draws.detach() / guide.median()["network.0.weight"] * K
    assert ((masks < 0.1) | (masks > 0.9)).float().mean() > 0.8


def test_empirical_bayes_prior():
    """λ* of Q = Σ E[w²] = ‖M‖²/k takes the place of the prior variance."""

    model = models.regression(lambda f: dist.Normal(f, 0.3), lambda: EmpiricalBayesNormal([3]))
    guide = MCDropoutGuide(p=P)
    term = DeterministicELBO().site_terms(model, guide, X, Y)["w"]
    second = guide.median()["w"].square().sum() / K
    best = (second + 20) / (3 + 2 + 2)
    log_normal = -0.5 * (3 * torch.log(2 * torch.pi * best) + second / best)
    assert term == pytest.approx(log_normal.item(), rel=1e-4)


def test_fits_and_files(tmp_path):
    model, guide = network(), MCDropoutGuide(p=P)
    result = fit(model, guide, X, Y, method="lbfgs", steps=20)
    assert result.losses[-1] < result.losses[0]
    path = tmp_path / "network.safetensors"
    save(path, model, guide, X, Y)
    before = predict(model, guide, X)["obs"].mean
    pyro.clear_param_store()
    fresh = MCDropoutGuide(p=P)
    load(path, model, fresh, X)
    torch.testing.assert_close(predict(model, fresh, X)["obs"].mean, before)
    restored = pickle.loads(pickle.dumps(fresh))
    torch.testing.assert_close(predict(model, restored, X)["obs"].mean, before)


def test_compiled_objective():
    model, guide = by_hand, MCDropoutGuide(p=P, learn_p=True)
    DeterministicELBO().loss(model, guide, X, Y)
    compiled = make()
    for _ in range(2):
        assert_same(compiled, DeterministicELBO(), model, guide, X, Y)
    assert len(programs(compiled)) == 1


def test_initial_values_of_modules_are_no_second_use():
    """A model that draws the values a module begins with is run twice."""

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand((4,)).to_event(1))
        layer = pyro.module("layer", nn.Linear(3, 4), update_module_params=True)
        models.observe(x, dist.Normal(layer(x) @ w, 0.3), y)

    guide, elbo = MCDropoutGuide(), DeterministicELBO()
    assert elbo.loss(model, guide, X, Y) == elbo.loss(model, guide, X, Y)
