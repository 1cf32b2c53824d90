"""Pyro's own guides under the analytic ELBO: exact oracles first, then Trace_ELBO."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoNormal,
    AutoNormalMessenger,
    AutoStructured,
)

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import DeterministicELBO, DVIGuide
from tests.oracles.pyro_samples import trace_elbo
from tests.pyro import models

X, Y = models.data()

SCALE = 0.2


def linear(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b = pyro.sample("b", dist.Normal(0.5, 2.0))
    models.observe(x, dist.Normal(x @ w + b, 0.3), y)


def with_noise(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    noise = pyro.sample("noise", dist.LogNormal(-0.5, 0.5))
    models.observe(x, dist.Normal(x @ w, noise), y)


def at_ones(site):
    return torch.ones(site["fn"].shape())


def structured(model):
    names = ["w", "noise"]
    conditionals = dict.fromkeys(names, "normal")
    options = {"init_loc_fn": at_ones, "init_scale": SCALE}
    return AutoStructured(model, conditionals=conditionals, **options)


def listed(model):
    guide = AutoGuideList(model)
    options = {"init_loc_fn": at_ones, "init_scale": SCALE}
    guide.append(AutoDiagonalNormal(poutine.block(model, hide=["noise"]), **options))
    guide.append(AutoNormal(poutine.block(model, expose=["noise"]), **options))
    return guide


class Messenger(AutoNormalMessenger):
    """Pyro's, with the initial values of the other guides."""

    def __init__(self, model):
        super().__init__(model, init_loc_fn=at_ones, init_scale=SCALE)


MEAN_FIELD = {
    "AutoNormal": lambda m: AutoNormal(m, init_loc_fn=at_ones, init_scale=SCALE),
    "AutoDiagonalNormal": lambda m: AutoDiagonalNormal(m, init_loc_fn=at_ones, init_scale=SCALE),
    "AutoNormalMessenger": Messenger,
    "AutoStructured": structured,
    "AutoGuideList": listed,
}


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("make_guide", MEAN_FIELD.values(), ids=MEAN_FIELD)
def test_mean_field_guides_are_one_posterior(make_guide, covariance):
    """The same q in six parametrisations: one loss, to rounding."""
    elbo = DeterministicELBO(covariance=covariance)
    reference = elbo.loss(with_noise, DVIGuide(init_loc_fn=at_ones, init_scale=SCALE), X, Y)
    guide = make_guide(with_noise)
    assert elbo.loss(with_noise, guide, X, Y) == pytest.approx(reference, rel=1e-5)
    elbo.loss_and_grads(with_noise, guide, X, Y)
    gradients = [p.grad for p in guide.parameters()]
    assert all(g is not None and torch.isfinite(g).all() and g.any() for g in gradients)


def test_gradients_of_a_diagonal_guide_are_those_of_its_sites():
    options = {"init_loc_fn": at_ones, "init_scale": SCALE}
    ours, host = DVIGuide(**options), AutoDiagonalNormal(linear, **options)
    for guide in (ours, host):
        DeterministicELBO().loss_and_grads(linear, guide, X, Y)
    expected = torch.cat([ours.locs.w_unconstrained.grad, ours.locs.b_unconstrained.grad[None]])
    assert torch.allclose(host.loc.grad, expected, rtol=1e-5)
    scale = ours.scales.w_unconstrained.grad
    assert torch.allclose(host.scale_unconstrained.grad[:3], scale, rtol=1e-4)


def test_diagonal_guide_of_a_network_names_its_sites():
    model = models.sequential(2)
    guide = AutoDiagonalNormal(model, init_loc_fn=at_ones, init_scale=SCALE)
    reference = DVIGuide(init_loc_fn=at_ones, init_scale=SCALE)
    expected = DeterministicELBO().loss(model, reference, X, Y)
    assert DeterministicELBO().loss(model, guide, X, Y) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(UnsupportedMoments, match=r"sites: network\.0\.bias, network\.0\.weight\n"):
        DeterministicELBO().loss(model, guide, X[:, :2], Y)


@pytest.mark.parametrize("make_guide", [AutoDelta, AutoLaplaceApproximation])
def test_point_estimates_give_the_log_joint(make_guide):
    guide = make_guide(with_noise)
    loss = DeterministicELBO().loss(with_noise, guide, X, Y)
    assert loss == pytest.approx(Trace_ELBO().loss(with_noise, guide, X, Y), rel=1e-6)
    DeterministicELBO().loss_and_grads(with_noise, guide, X, Y)
    assert all(p.grad.any() for p in guide.parameters())


def test_flows_are_refused_or_drawn_whole():
    guide = AutoIAFNormal(linear, hidden_dim=[8])
    with pytest.raises(UnsupportedMoments, match=r"AutoIAF.*(?s:.)*sample_sites=\['w', 'b'\]"):
        DeterministicELBO().loss(linear, guide, X, Y)
    with pytest.raises(UnsupportedMoments, match=r"cannot be drawn in part \(b\)"):
        DeterministicELBO(sample_sites=["b"]).loss(linear, guide, X, Y)
    elbo = DeterministicELBO(sample_sites=["w", "b"], num_particles=150)
    expected, error = trace_elbo(linear, guide, X, Y, samples=600)
    draws = torch.tensor([elbo.loss(linear, guide, X, Y) for _ in range(4)])
    assert abs(draws.mean() - expected) < 4 * (error**2 + draws.var() / 4) ** 0.5


@pytest.mark.parametrize("name", ["AutoDiagonalNormal", "AutoNormalMessenger", "AutoStructured"])
def test_mixed_sites_draw_only_what_is_named(name):
    guide = MEAN_FIELD[name](with_noise)
    exact = DeterministicELBO().loss(with_noise, guide, X, Y)
    elbo = DeterministicELBO(sample_sites=["noise"])
    draws = torch.tensor([elbo.loss(with_noise, guide, X, Y) for _ in range(200)])
    assert draws.std() > 0
    assert abs(draws.mean() - exact) < 4 * draws.std() / 200**0.5
    gradients = []
    for _ in range(2):
        guide.zero_grad()
        elbo.loss_and_grads(with_noise, guide, X, Y)
        gradients.append(torch.cat([p.grad.flatten() for p in guide.parameters()]))
    assert not torch.equal(*gradients)


def test_a_latent_vector_is_only_known_by_its_parts():
    class Shifted(AutoDiagonalNormal):
        def sample_latent(self, *args, **kwargs):
            latent = super().sample_latent(*args, **kwargs)
            return torch.add(latent, 1.0)

    with pytest.raises(UnsupportedMoments, match="as a whole"):
        DeterministicELBO().loss(linear, Shifted(linear), X, Y)


def test_a_guide_inside_a_function_keeps_its_dependence():
    """The latent vector is found through the guide; behind a function its parts share a name."""
    inner = AutoDiagonalNormal(linear, init_loc_fn=at_ones, init_scale=SCALE)
    expected = DeterministicELBO().loss(linear, inner, X, Y)
    loss = DeterministicELBO().loss(linear, lambda x, y: inner(x, y), X, Y)
    assert loss == pytest.approx(expected, rel=1e-5)


def test_auxiliary_sites_of_a_guide_count_as_in_trace_elbo():
    def model(y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        pyro.sample("obs", dist.Normal(a, 0.5), obs=y)

    def guide(y):
        hidden = pyro.sample("hidden", dist.Normal(0.2, 0.7), infer={"is_auxiliary": True})
        slope = torch.tensor(2.0)
        pyro.sample("a", dist.Delta(2.0 * hidden + 1.0, log_density=-slope.log()))

    def direct(y):
        pyro.sample("a", dist.Normal(1.4, 1.4))

    y = torch.tensor(0.3)
    expected = DeterministicELBO().loss(model, direct, y)
    assert DeterministicELBO().loss(model, guide, y) == pytest.approx(expected, rel=1e-6)


def test_a_site_named_like_an_auxiliary_site_stays_apart():
    def model(y, first, second):
        total = pyro.sample(first, dist.Normal(0.0, 1.0)) + pyro.sample(second, dist.Normal(0, 2))
        pyro.sample("obs", dist.Normal(total, 0.5), obs=y)

    def loss(*names):
        guide = AutoNormal(model, init_loc_fn=at_ones)
        return DeterministicELBO().loss(model, guide, torch.tensor(0.7), *names)

    assert loss("w", "w_aux") == pytest.approx(loss("w", "v"))
