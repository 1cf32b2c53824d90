"""Hierarchical priors, nested plates, local latents, by Trace_ELBO."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoDiagonalNormal, AutoNormal, AutoNormalMessenger

from pyro_moments import DependenceWarning, DeterministicELBO, DVIGuide
from tests.oracles.pyro_samples import assert_near, trace_elbo
from tests.pyro.elbo.test_sites import assert_equals_vectorised_trace_elbo

GROUPS, POINTS = 20, 60
GROUP = torch.arange(POINTS) % GROUPS
PRIORS = {
    "LogNormal": dist.LogNormal(-0.5, 0.5),
    "HalfNormal": dist.HalfNormal(1.0),
    "HalfCauchy": dist.HalfCauchy(1.0),
    "Gamma": dist.Gamma(2.0, 2.0),
    "InverseGamma": dist.InverseGamma(3.0, 2.0),
}


def observations() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(GROUPS, generator=generator)
    return means[GROUP] + 0.5 * torch.randn(POINTS, generator=generator)


def near_zero(site):
    return torch.full(site["fn"].shape(), 0.6)


def hierarchy(prior, centred=True):
    """Twenty groups whose means share a location and a scale."""

    def model(group, y):
        centre = pyro.sample("centre", dist.Normal(0.0, 2.0))
        spread = pyro.sample("spread", prior)
        with pyro.plate("groups", GROUPS):
            local = dist.Normal(centre, spread) if centred else dist.Normal(0.0, 1.0)
            mean = pyro.sample("mean", local)
        mean = mean if centred else centre + spread * mean
        with pyro.plate("data", len(y)):
            pyro.sample("obs", dist.Normal(mean[..., group], 0.5), obs=y)

    return model


@pytest.mark.parametrize("centred", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_twenty_groups_with_a_common_scale(prior, centred):
    model = hierarchy(prior, centred)
    guide = DVIGuide(model, init_loc_fn=near_zero, init_scale=0.15)
    assert_equals_vectorised_trace_elbo(model, guide, GROUP, observations(), most=1.0)


@pytest.mark.parametrize("make_guide", [AutoNormal, AutoDiagonalNormal, AutoNormalMessenger])
def test_twenty_groups_under_pyros_guides(make_guide):
    model = hierarchy(PRIORS["LogNormal"])
    guide = make_guide(model, init_loc_fn=near_zero, init_scale=0.15)
    assert_equals_vectorised_trace_elbo(model, guide, GROUP, observations())


def test_nested_plates():
    y = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(2))

    def model(y):
        spread = pyro.sample("spread", dist.LogNormal(0.0, 0.3))
        outer = pyro.plate("outer", 3, dim=-1)
        middle = pyro.plate("middle", 4, dim=-2)
        with outer:
            a = pyro.sample("a", dist.Normal(0.0, 1.0))
            with middle:
                b = pyro.sample("b", dist.Normal(a, spread))
                with pyro.plate("inner", 5, dim=-3):
                    pyro.sample("obs", dist.Normal(b, 0.5), obs=y)

    guide = DVIGuide(model, init_loc_fn=near_zero, init_scale=0.2)
    assert_equals_vectorised_trace_elbo(model, guide, y, plates=3)
    assert guide.median()["b"].shape == (4, 3)


def local_latents(y, size=None):
    spread = pyro.sample("spread", dist.LogNormal(0.0, 0.3))
    with pyro.plate("data", len(y), subsample_size=size) as index:
        z = pyro.sample("z", dist.Normal(0.0, spread))
        pyro.sample("obs", dist.Normal(z, 0.5), obs=y[index])


@pytest.mark.parametrize("make_guide", [DVIGuide, AutoNormal, AutoNormalMessenger])
def test_subsampled_local_latents_average_to_the_whole(make_guide):
    """Every subsample of a partition, so that the average is exact: no sampling error at all."""
    y = torch.linspace(-1, 1, 12)
    elbo, options = DeterministicELBO(), {"init_loc_fn": near_zero, "init_scale": 0.2}
    guide, batched = (make_guide(local_latents, **options) for _ in range(2))
    elbo.loss(local_latents, guide, y), elbo.loss(local_latents, batched, y, 4)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    batched.load_state_dict(guide.state_dict())
    whole = elbo.loss(local_latents, guide, y)
    losses = []
    for index in torch.arange(12).reshape(3, 4):
        with fixed_subsample(index):
            losses.append(elbo.loss(local_latents, batched, y, 4))
    assert sum(losses) / 3 == pytest.approx(whole, rel=1e-5)
    assert len(set(losses)) == 3


class fixed_subsample(pyro.poutine.messenger.Messenger):
    """Gives the plate its indices, in guide and model."""

    def __init__(self, index):
        super().__init__()
        self.index = index

    def _pyro_sample(self, msg):
        if msg["name"] == "data" and not msg["done"]:
            msg["value"], msg["done"] = self.index, True


def test_guide_messengers_initialise_from_priors_that_are_certain():
    """Their first run reads every prior; one with a random location would have no initial value."""
    model = hierarchy(PRIORS["LogNormal"])
    guide = AutoNormalMessenger(model)
    assert DeterministicELBO().loss(model, guide, GROUP, observations()) > 0
    assert guide.locs.mean.shape == (GROUPS,)


def test_a_table_of_two_crossed_effects():
    """The feature axes of its rows and columns differ, and the columns lack the first."""

    def model(y):
        ability, difficulty, slope = (
            pyro.sample(name, prior.expand([size]).to_event(1))
            for name, prior, size in (
                ("ability", dist.Normal(0.0, 1.0), 5),
                ("difficulty", dist.Normal(0.0, 1.0), 4),
                ("slope", dist.LogNormal(0.0, 0.3), 4),
            )
        )
        logits = slope * (ability[:, None] - difficulty)
        with pyro.plate("rows", 5, dim=-2), pyro.plate("columns", 4, dim=-1):
            pyro.sample("obs", dist.Bernoulli(logits=logits), obs=y)

    y = (torch.arange(20) % 3 > 0).float().reshape(5, 4)
    guide = AutoNormal(model, init_scale=0.3)
    full, diagonal = (
        DeterministicELBO(covariance=kind).loss(model, guide, y) for kind in ("full", "diagonal")
    )
    assert full == pytest.approx(diagonal, rel=1e-5)
    assert_near(full, trace_elbo(model, guide, y, samples=1000))


def autoregression(y, *, tied):
    """Steps that multiply by one coefficient, or by one of their own each."""
    state, names = torch.tensor(1.0), ["a"] if tied else [f"a{step}" for step in range(len(y))]
    factors = [pyro.sample(name, dist.Normal(0.8, 0.1)) for name in names]
    for step, value in enumerate(y):
        state = factors[step % len(factors)] * state + pyro.sample(
            f"w{step}", dist.Normal(0.0, 0.5)
        )
        pyro.sample(f"y{step}", dist.Normal(state, 0.3), obs=value)


def test_a_value_multiplied_again_by_its_own_factor_is_announced():
    y, elbo = torch.tensor([0.5, 0.2, 0.4]), DeterministicELBO()
    with pytest.warns(DependenceWarning, match="multiplied again"):
        elbo.loss(autoregression, DVIGuide(), y, tied=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DependenceWarning)
        elbo.loss(autoregression, DVIGuide(), y, tied=False)
