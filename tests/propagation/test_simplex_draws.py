"""Draws of Beta and Dirichlet guide sites of several particles in Pyro."""

from __future__ import annotations

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

from pyro_moments.particles.noise import draw_by_gammas
from tests.fitting.models import fresh

COUNT = 10_000


def draws(fn):
    torch.manual_seed(0)
    return torch.vmap(lambda _: draw_by_gammas(fn), randomness="different")(torch.arange(COUNT))


@pytest.mark.parametrize("concentration", [0.3, 2.0])
def test_beta_draws_are_beta(concentration):
    one = dist.Beta(torch.tensor(concentration), 1.5)
    wide = one.expand([3]).to_event(1)
    found = draws(wide)
    assert found.shape == (COUNT, 3)
    for column in found.T.numpy():
        assert stats.kstest(column, stats.beta(concentration, 1.5).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(found.T.numpy()) - np.eye(3)).max() < 4.5 / COUNT**0.5


def test_dirichlet_draws_have_its_marginals_and_gradients():
    concentration = torch.tensor([0.5, 1.0, 2.5], requires_grad=True)
    found = draws(dist.Dirichlet(concentration))
    torch.testing.assert_close(found.sum(-1), torch.ones(COUNT))
    for column, own in zip(found.detach().T.numpy(), (0.5, 1.0, 2.5), strict=True):
        assert stats.kstest(column, stats.beta(own, 4 - own).cdf).pvalue > 1e-3
    (gradient,) = torch.autograd.grad(found[:, 0].mean(), concentration)
    exact = torch.tensor([1 / 4 - 0.5 / 16, -0.5 / 16, -0.5 / 16])
    torch.testing.assert_close(gradient, exact, atol=0.01, rtol=0.0)


def test_transforms_of_a_beta_and_other_distributions():
    twice = dist.TransformedDistribution(
        dist.Beta(torch.tensor(2.0), 3.0), [dist.transforms.AffineTransform(1.0, 2.0)]
    )
    column = draws(twice.expand([2]))[:, 1].numpy()
    assert stats.kstest((column - 1) / 2, stats.beta(2.0, 3.0).cdf).pvalue > 1e-3
    assert draw_by_gammas(dist.Gamma(2.0, 1.0)) is None


@pytest.mark.parametrize("posterior", ["Beta", "Dirichlet", "HalfCauchy"])
def test_particles_of_such_guide_sites(posterior):
    host = fresh("pyro")

    def fn(size):
        if posterior == "Dirichlet":
            return host.dist.Dirichlet(size * torch.ones(3))
        return host.dist.HalfCauchy(size) if posterior == "HalfCauchy" else dist.Beta(size, 2.0)

    def model(x, y=None):
        value = host.language.sample("scale", fn(torch.tensor(1.0))).reshape(-1)
        scale = value @ torch.arange(1.0, 1 + len(value))
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(x.sum(-1) * scale, 1.0), obs=y)

    def guide(x, y=None):
        size = host.language.param("size", torch.tensor(2.0), constraint=dist.constraints.positive)
        host.language.sample("scale", fn(size))

    x, y, package = host.x[:4], host.y[:4], host.package
    options = {"propagation": "sampled", "num_particles": 3}
    for objective in (package.DeterministicELBO(**options), package.RenyiELBO(num_particles=3)):
        host.language.clear_param_store()
        assert math.isfinite(objective.loss_and_grads(model, guide, x, y))
        (parameter,) = (part for _, part in host.language.get_param_store().named_parameters())
        assert float(parameter.grad) != 0
    prediction = package.predict(model, guide, x, **options)["obs"]
    assert (prediction.epistemic_variance > 1e-6).all()
