"""Sites on a simplex, in both hosts: exact, on average also where they are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints
from scipy import stats

from tests.propagation.oracle import losses, near

CLASSES = np.array([0, 1, 2, 2, 1, 2])
PRIOR = 2.0


def proportions(host):
    """The same with a second, Gaussian site, which stays analytic."""

    def model(classes):
        sample = host.language.sample
        p = sample("p", host.dist.Dirichlet(PRIOR * host.np.ones(3)))
        shift = sample("shift", host.dist.Normal(0.0, 1.0))
        with host.language.plate("data", len(CLASSES)):
            sample("obs", host.dist.Categorical(p), obs=classes)
        sample("total", host.dist.Normal(shift, 0.5), obs=host.np.ones(()))

    return model


def expected():
    """The negative ELBO at standard normal sticks, on a fine grid, and shift."""
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


def loss_of(host, count, **options):
    """At standard normal sticks and shift."""
    sites = {"p": (np.zeros(2), np.ones(2)), "shift": (0.0, 1.0)}
    objective = host.package.DeterministicELBO(**options)
    return losses(host, objective, proportions(host), sites, CLASSES, count=count)


@pytest.mark.parametrize(("host", "count"), [("pyro", 400), ("numpyro", 4000)], indirect=["host"])
def test_a_dirichlet_is_drawn_where_it_is_named(host, count):
    estimates = loss_of(host, count, sample_sites=["p"])
    with jax.enable_x64(True):
        exact = expected()
    assert 0 < estimates.std() / np.sqrt(count) < 0.2
    assert near(estimates, exact, errors=4)


def test_a_dirichlet_is_exact_otherwise(host):
    with jax.enable_x64(True):
        np.testing.assert_allclose(loss_of(host, 1)[0], expected(), rtol=1e-6)
