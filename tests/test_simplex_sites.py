"""Sites on a simplex, in both hosts: refused by name, exact on average where they are drawn."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpyro.distributions import biject_to, constraints
from scipy import stats

import numpyro_moments
import pyro_moments
from moment_calculus.errors import UnsupportedMoments
from tests.cases.hosts import models
from tests.checks.jaxprs import by_numpy

CLASSES = np.array([0, 1, 2, 2, 1, 2])
PRIOR = 2.0


def proportions(host, classes):
    """The same with a second, Gaussian site, which stays analytic."""
    ones = host.np.ones(3)
    p = host.sample("p", host.dist.Dirichlet(PRIOR * ones))
    shift = host.sample("shift", host.dist.Normal(0.0, 1.0))
    with host.plate("data", len(CLASSES)):
        host.sample("obs", host.dist.Categorical(p), obs=classes)
    host.sample("total", host.dist.Normal(shift, 0.5), obs=host.np.ones(()))


def expected():
    """The negative ELBO at standard normal sticks and shift, the sticks on a fine grid."""
    points = np.linspace(-9, 9, 301)
    weights = stats.norm.pdf(points) / stats.norm.pdf(points).sum()
    free = np.stack(np.meshgrid(points, points, indexing="ij"), axis=-1)
    to_simplex = biject_to(constraints.simplex)
    p = to_simplex(jnp.asarray(free))
    log_p = np.asarray(jnp.log(p))
    counts = np.bincount(CLASSES)
    constant = stats.dirichlet(np.full(3, PRIOR)).logpdf(np.full(3, 1 / 3)) + 3 * np.log(3)
    terms = constant + ((PRIOR - 1 + counts) * log_p).sum(-1)
    terms += np.asarray(to_simplex.log_abs_det_jacobian(jnp.asarray(free), p))
    sticks = np.einsum("ij,i,j", terms, weights, weights) + 2 * stats.norm.entropy()
    observed = stats.norm(0, 0.5).logpdf(1.0) - 0.5 / 0.25  # N(0, 1) against N(0, 1): no KL
    return -(sticks + observed)


def in_pyro(samples):
    torch.manual_seed(0)
    guide = pyro_moments.DVIGuide(init_scale=1.0)
    elbo = pyro_moments.DeterministicELBO(sample_sites=["p"])
    model, data = partial(proportions, models.PYRO), torch.as_tensor(CLASSES)
    elbo.loss(model, guide, data)
    with torch.no_grad():
        for parameter in guide.locs.parameters():
            parameter.zero_()
        return np.array([elbo.loss(model, guide, data) for _ in range(samples)])


def in_numpyro(samples):
    model, data = partial(proportions, models.NUMPYRO), jnp.asarray(CLASSES)
    guide = numpyro_moments.DVIGuide(model)
    elbo = numpyro_moments.DeterministicELBO(sample_sites=["p"])
    values = {"p_auto_loc": jnp.zeros(2), "p_auto_scale": jnp.ones(2)}
    values |= {"shift_auto_loc": jnp.zeros(()), "shift_auto_scale": jnp.ones(())}
    loss = jax.vmap(lambda key: elbo.loss(key, values, model, guide, data))
    return np.asarray(by_numpy(loss)(jax.random.split(jax.random.key(0), samples)))


@pytest.mark.parametrize(("losses", "samples"), [(in_pyro, 400), (in_numpyro, 4000)])
@pytest.mark.usefixtures("double_precision", "double_precision_in_jax")
def test_a_dirichlet_is_drawn_where_it_is_named(losses, samples):
    drawn, exact = losses(samples), expected()
    error = drawn.std() / np.sqrt(samples)
    assert 0 < error < 0.2
    assert abs(drawn.mean() - exact) < 4 * error


@pytest.mark.parametrize(
    ("package", "host"), [(pyro_moments, models.PYRO), (numpyro_moments, models.NUMPYRO)]
)
def test_a_dirichlet_is_refused_otherwise(package, host):
    model = partial(proportions, host)
    svi = package.SVI(model, package.DVIGuide(), package.DeterministicELBO())
    run = svi.step if host is models.PYRO else partial(svi.run, jax.random.key(0), 1)
    data = torch.as_tensor(CLASSES) if host is models.PYRO else jnp.asarray(CLASSES)
    with pytest.raises(UnsupportedMoments, match=r"StickBreaking(?s:.)*sample_sites=\['p'\]"):
        run(data)
