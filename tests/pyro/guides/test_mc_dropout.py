"""MCDropoutGuide follows the conventions of Pyro's guides."""

import pickle

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive, Trace_ELBO, TraceMeanField_ELBO
from torch import nn

from pyro_moments import (
    SVI,
    DeterministicELBO,
    EmpiricalBayesNormal,
    MCDropoutGuide,
    UnsupportedMoments,
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


def test_draws_have_the_moments_of_the_posterior():
    """One mask over the inputs for each draw, shared by the outputs."""
    for noise in ("bernoulli", "gaussian", "dropconnect"):
        _, guide = trained(noise=noise)
        draws = guide.sample_posterior(4000)["network.0.weight"]
        loc = guide.median()["network.0.weight"]
        ratio = draws / loc
        assert ratio.shape == (4000, 4, 3)
        shared = (ratio.std(1) < 1e-5).all()
        assert shared == (noise != "dropconnect")
        np.testing.assert_allclose(ratio.mean(0), 1.0, atol=4 * (P / K / 4000) ** 0.5)
        np.testing.assert_allclose(ratio.var(0), P / K, rtol=0.1)
        assert (guide.sample_posterior(2)["network.0.bias"].std(0) == 0).all()


def test_quantiles_are_those_of_the_marginals():
    for noise in ("bernoulli", "gaussian"):
        _, guide = trained(noise=noise)
        draws = guide.sample_posterior(20_000)["network.0.weight"]
        levels = [0.1, 0.39, 0.41, 0.59, 0.61, 0.9]
        found = guide.quantiles(levels)["network.0.weight"]
        for level, values in zip(levels, found, strict=True):
            below = (draws <= values + 1e-6 * values.abs()).float().mean(0)
            above = (draws >= values - 1e-6 * values.abs()).float().mean(0)
            assert (below > level - 0.02).all()
            assert (above > 1 - level - 0.02).all()


def test_quantiles_of_other_sites():
    for others in ("point", "mean_field"):
        _, guide = trained(others=others)
        low, high = guide.quantiles([0.1, 0.9])["network.0.bias"]
        assert ((low < high) == (others == "mean_field")).all()


def test_predictive_of_the_host():
    """Each row has the right marginal: mean and variance over draws are the predicted ones."""
    model, guide = trained()
    draws = Predictive(model, guide=guide, num_samples=1000)(X)["obs"]
    ours = predict(model, guide, X)["obs"]
    error = 4 * (ours.variance / 1000) ** 0.5
    assert ((draws.mean(0) - ours.mean).abs() < error + 0.05 * ours.variance.sqrt()).all()
    np.testing.assert_allclose(draws.var(0), ours.variance, rtol=0.35)


@pytest.mark.parametrize("host", [Trace_ELBO, TraceMeanField_ELBO])
def test_elbos_by_densities_refuse_it(host):
    model, guide = trained()
    with pytest.raises(UnsupportedMoments, match=r"network\.\d\.weight.* has no density") as raised:
        host().loss(model, guide, X, Y)
    assert "DeterministicELBO" in raised.value.remedy


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


def test_it_is_no_prior_of_new_data():
    earlier = fit(by_hand, MCDropoutGuide(), X, Y, steps=1)
    with pytest.raises(ValueError, match="MCDropoutGuide has no density"):
        fit(by_hand, MCDropoutGuide(), X, Y, steps=1, prior=earlier)


SPELLINGS = {
    "matmul": lambda x, w: x @ w,
    "linear": lambda x, w: nn.functional.linear(x, w.T),
    "mm": lambda x, w: torch.mm(x, w.contiguous()),
    "columns": lambda x, w: (w.mT @ x.T).T,
    "rmatmul": lambda x, w: (w.transpose(0, 1) @ x.T).permute(1, 0),
    "addmm": lambda x, w: torch.addmm(torch.zeros(4), x, w),
    "einsum": lambda x, w: torch.einsum("bi,io->bo", x, w.clone()),
    "tensordot": lambda x, w: torch.tensordot(x, w.to(torch.float32), 1),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_a_linear_map(name):
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand((3, 4)).to_event(2))
        with pyro.plate("data", len(x)):
            f = SPELLINGS[name](x, w)
            pyro.sample("obs", dist.Normal(f, 0.3).to_event(1), obs=f.mean() if y is None else y)

    guide, y = MCDropoutGuide(p=P), torch.ones(10, 4)
    DeterministicELBO().loss(model, guide, X, y)
    loc = guide.median()["w"]
    found = DeterministicELBO().site_terms(model, guide, X, y)["obs"]
    variance = P / K * (X.square() @ loc.square())
    expected = dist.Normal(X @ loc, 0.3).log_prob(y) - 0.5 * variance / 0.09
    assert found == pytest.approx(expected.sum().item(), rel=1e-5)
