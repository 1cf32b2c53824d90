"""What is said of a Gaussian over all sites: of a funnel that it does not hold, and beside NUTS."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
import pyro_moments
from tests.cases.hosts import models

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

GROUP = np.arange(30) % 3
RANDOM = np.random.default_rng(23)
Y = RANDOM.normal(size=3)[GROUP] + 0.5 * RANDOM.normal(size=30)
QUIET = {"method": "newton", "by_draws": False, "progress_bar": False}


def wide_scales(host, group, y):
    """Three groups under a wide scale, whose posterior is a funnel."""
    dist = host.dist
    mean = host.sample("mean", dist.Normal(0.0, 10.0))
    spread = host.sample("spread", dist.Uniform(0.0, 10.0))
    noise = host.sample("noise", dist.Uniform(0.0, 10.0))
    with host.plate("groups", 3):
        z = host.sample("z", dist.Normal(0.0, 1.0))
    with host.plate("data", 30):
        host.sample("obs", dist.Normal(mean + spread * z[group], noise), obs=y)


def test_a_funnel_is_never_called_good_nor_a_gaussian_advised_in_its_place():
    def program(group, y):
        wide_scales(models.PYRO, group, y)

    data = torch.as_tensor(GROUP), torch.as_tensor(Y)
    fit = pyro_moments.fit(program, pyro_moments.GaussianGuide(), *data, **QUIET)
    diagnosis = pyro_moments.diagnose(program, fit, *data)
    assert not diagnosis.is_good
    bad = {finding.check: finding.remedy for finding in diagnosis.problems}
    assert "no Gaussian of these coordinates holds this posterior" in bad["k̂ of linear response"]
    assert not any("AutoMultivariateNormal" in remedy for remedy in bad.values())
    assert not any("guide with covariances" in remedy for remedy in bad.values())
    assert "no better than" not in str(diagnosis)  # by scores that say nothing


def test_chains_of_numpyro_stand_beside_a_joint_guide():
    def program(group, y):
        wide_scales(models.NUMPYRO, group, y)

    data = jnp.asarray(GROUP), jnp.asarray(Y)
    fit = numpyro_moments.fit(program, numpyro_moments.GaussianGuide(), *data, **QUIET)
    short = {"num_warmup": 100, "num_samples": 50, "num_chains": 1}
    comparison = numpyro_moments.compare_with_nuts(program, fit, *data, **short)
    table = comparison.table()
    assert {"mean", "spread", "noise", "z[0]"} <= set(table.reset_index().iloc[:, 0])
    assert "GaussianGuide" in str(comparison)
    assert "linear response" in str(comparison)
