"""The divergences of small sites are computed together: the same loss as site by site."""

from contextlib import nullcontext

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch.distributions import kl_divergence

from pyro_moments import DeterministicELBO, DVIGuide
from pyro_moments.sites.terms import SMALL, Divergence, summed

SHAPES = [(2, 3), (4,), ()]


def model(around=nullcontext):
    """Small and large sites, in and out of plates, and one with another kind of prior."""
    pyro.sample("a", dist.Normal(0.3, 2.0).expand([2, 3]).to_event(2))
    pyro.sample("b", dist.Normal(torch.tensor([1.0, -1.0]), torch.tensor([0.5, 3.0])).to_event(1))
    pyro.sample("c", dist.Laplace(0.0, 1.0))
    pyro.sample("large", dist.Normal(0.0, 1.0).expand([SMALL + 1]).to_event(1))
    with around(), pyro.plate("plate", 4):
        pyro.sample("d", dist.Normal(-1.0, 0.7))


@pytest.mark.parametrize(
    "around",
    {
        "plain": nullcontext,
        "scaled": lambda: poutine.scale(scale=0.25),
        "scaled each": lambda: poutine.scale(scale=torch.tensor([0.5, 1.0, 2.0, 3.0])),
        "masked": lambda: poutine.mask(mask=torch.tensor([True, False, True, True])),
    }.values(),
    ids=["plain", "scaled", "scaled each", "masked"],
)
def test_loss_is_that_of_the_sites(around):
    elbo, guide = DeterministicELBO(), DVIGuide(init_scale=0.4)
    terms = elbo.site_terms(model, guide, around)
    assert terms.keys() == {"a", "b", "c", "d", "large"}
    assert elbo.loss(model, guide, around) == pytest.approx(-sum(terms.values()), rel=1e-6)


def divergences():
    torch.manual_seed(0)
    return [
        Divergence(
            torch.randn(shape, dtype=torch.double, requires_grad=True),
            torch.rand(shape, dtype=torch.double, requires_grad=True),
            torch.randn(shape, dtype=torch.double),
            torch.rand(shape, dtype=torch.double),
        )
        for shape in SHAPES
    ]


def test_together_as_the_host_has_them():
    parts = divergences()
    expected = sum(
        kl_divergence(
            dist.Normal(part.mean, part.variance.sqrt()),
            dist.Normal(part.prior_mean, part.prior_scale),
        ).sum()
        for part in parts
    )
    inputs = [tensor for part in parts for tensor in part[:2]]
    torch.testing.assert_close(summed(parts), expected)
    slopes = torch.autograd.grad(summed(parts), inputs)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected, inputs))


def test_only_what_is_alike_is_computed_together():
    small, vector, _ = divergences()
    assert small.batch_key == vector.batch_key
    assert small._replace(mean=torch.zeros(2, 3)).batch_key is None
    assert small._replace(prior_scale=torch.ones((), dtype=torch.double)).batch_key is None
    assert Divergence(*[torch.ones(SMALL + 1)] * 4).batch_key is None
