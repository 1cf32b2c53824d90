"""Guides and ELBOs as objects: copies, files, optimisers, handlers."""

import copy
import io
import pickle

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal

from pyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.oracles.pyro_samples import trace_elbo
from tests.pyro import models

X, Y = models.data()


@pytest.fixture
def local_parameters():
    with pyro.settings.context(module_local_params=True):
        yield


def sites_of_every_shape(x, y=None):
    noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("groups", 4):
        t = pyro.sample("t", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 2, dim=-2), pyro.plate("columns", 5, dim=-1):
        m = pyro.sample("m", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
    del t, m
    return models.observe(x, dist.Normal((x * w).sum(-1), noise), y)


SHAPES = {"noise": (), "w": (3,), "t": (4,), "m": (2, 5, 6)}


def test_posterior_summaries_have_the_shapes_of_the_sites():
    guide = DVIGuide(sites_of_every_shape, init_scale=0.3)
    guide(X, Y)
    draws, quantiles = guide.sample_posterior(7), guide.quantiles([0.1, 0.5, 0.9])
    for name, shape in SHAPES.items():
        assert guide.median()[name].shape == shape
        assert draws[name].shape == (7, *shape)
        assert quantiles[name].shape == (3, *shape)
        assert torch.allclose(quantiles[name][1], guide.median()[name])
    assert {name: tuple(value.shape) for name, value in guide(X, Y).items()} == SHAPES


def test_predictive_equals_the_host_guides_in_shape():
    shapes = []
    for make_guide in (DVIGuide, AutoNormal):
        guide = make_guide(sites_of_every_shape)
        guide(X, Y)
        draws = Predictive(sites_of_every_shape, guide=guide, num_samples=5)(X)
        shapes.append({name: draw.shape for name, draw in draws.items()})
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"]
)
@pytest.mark.usefixtures("local_parameters")
def test_copies_are_independent_and_equal(duplicate):
    module = DeterministicELBO(covariance="diagonal")(models.sequential(2), DVIGuide())
    loss = module(X, Y).item()
    other = duplicate(module)
    assert other.elbo.propagation == module.elbo.propagation
    assert other(X, Y).item() == loss
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert other(X, Y).item() != loss
    assert module(X, Y).item() == loss


@pytest.mark.usefixtures("local_parameters")
def test_a_state_dict_carries_the_loss_over():
    modules = [DeterministicELBO()(models.Heteroscedastic(), DVIGuide()) for _ in range(2)]
    first, second = (module(X, Y).item() for module in modules)
    assert first != second
    modules[1].load_state_dict(modules[0].state_dict())
    assert modules[1](X, Y).item() == first


@pytest.mark.parametrize("local", [False, True], ids=["store", "local"])
def test_torch_optimisers_train_the_module(local):
    with pyro.settings.context(module_local_params=local):
        module = DeterministicELBO()(models.sequential(), DVIGuide())
        first = module(X, Y).item()
        optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
        for _ in range(40):
            optimiser.zero_grad()
            loss = module(X, Y)
            loss.backward()
            optimiser.step()
    assert loss.item() < 0.5 * first


def test_the_first_call_of_a_loss_makes_its_parameters():
    """As the README says: an optimiser that is made before has nothing to train."""
    module = DeterministicELBO()(models.linear_regression, DVIGuide())
    assert list(module.parameters()) == []
    module(X, Y)
    assert sum(parameter.numel() for parameter in module.parameters()) == 2 * (3 + 1)


def test_the_parameter_store_restores_a_guide():
    svi = SVI(models.linear_regression, DVIGuide(), DeterministicELBO())
    for _ in range(10):
        svi.step(X, Y)
    loss, buffer = svi.evaluate_loss(X, Y), io.BytesIO()
    torch.save(pyro.get_param_store().get_state(), buffer)
    pyro.clear_param_store()
    guide = DVIGuide()
    assert DeterministicELBO().loss(models.linear_regression, guide, X, Y) != loss
    buffer.seek(0)
    pyro.get_param_store().set_state(torch.load(buffer, weights_only=False))
    assert DeterministicELBO().loss(models.linear_regression, guide, X, Y) == loss


GUIDES = {
    "DVIGuide": lambda m: DVIGuide(m, init_scale=0.2),
    "AutoNormal": lambda m: AutoNormal(m, init_scale=0.2),
    "AutoDiagonalNormal": lambda m: AutoDiagonalNormal(m, init_scale=0.2),
    "AutoMultivariateNormal": lambda m: AutoMultivariateNormal(m, init_scale=0.2),
    "AutoDelta": AutoDelta,
}


@pytest.mark.parametrize("make_guide", GUIDES.values(), ids=GUIDES)
def test_scale_and_mask_around_model_and_guide(make_guide):
    model = models.linear_regression
    guide, elbo = make_guide(model), DeterministicELBO()
    loss = elbo.loss(model, guide, X, Y)
    scaled = elbo.loss(poutine.scale(model, 0.1), poutine.scale(guide, 0.1), X, Y)
    assert scaled == pytest.approx(0.1 * loss, rel=1e-5)
    assert elbo.loss(poutine.mask(model, False), poutine.mask(guide, False), X, Y) == 0
    entropy_less = elbo.loss(model, poutine.scale(guide, 0.5), X, Y)
    expected, error = trace_elbo(model, poutine.scale(guide, 0.5), X, Y, samples=200)
    assert entropy_less == pytest.approx(expected, abs=4 * error, rel=1e-6)


def test_fixed_sites_are_certain():
    """Conditioning adds the site's prior density; intervening leaves the site as a latent one."""
    value = {"b": torch.tensor(0.5)}

    without = models.regression(lambda f: dist.Normal(f + 0.5, 0.3))
    guide = DVIGuide(models.linear_regression, init_scale=0.2)
    guide(X, Y)
    elbo, blocked = DeterministicELBO(), poutine.block(guide, hide=["b"])
    fit = elbo.loss(without, blocked, X, Y)
    prior = dist.Normal(0.0, 1.0)
    conditioned = elbo.loss(poutine.condition(models.linear_regression, value), blocked, X, Y)
    assert conditioned == pytest.approx(fit - prior.log_prob(value["b"]).item(), rel=1e-6)
    posterior = dist.Normal(guide.locs.b, guide.scales.b)
    divergence = torch.distributions.kl_divergence(posterior, prior).item()
    intervened = elbo.loss(poutine.do(models.linear_regression, value), guide, X, Y)
    assert intervened == pytest.approx(fit + divergence, rel=1e-6)


def test_a_conditioned_guide_is_refused_by_pyro():
    """The site is observed in the guide, and Pyro replays no such site, for its own ELBOs too."""
    model = models.linear_regression
    guide = DVIGuide(model)
    guide(X, Y)
    conditioned = poutine.condition(guide, data={"b": torch.tensor(0.5)})
    for elbo in (DeterministicELBO(), Trace_ELBO()):
        with pytest.raises(RuntimeError, match="site b must be sampled in trace"):
            elbo.loss(model, conditioned, X, Y)
