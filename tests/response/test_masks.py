"""How many elements of an observation are masked, whatever is wrapped around its distribution."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions
import pyro.distributions
import pytest
import torch

from moment_calculus.response.data import count_masked

ROWS, PARTS = np.array([True, False, True, True]), np.arange(12).reshape(4, 3) % 4 > 0
HOSTS = {
    "pyro": (pyro.distributions, torch.as_tensor),
    "numpyro": (numpyro.distributions, jnp.asarray),
}


@pytest.mark.parametrize("host", HOSTS)
def test_masks_count_at_every_depth(host):
    dist, array = HOSTS[host]
    normal = dist.Normal(array(np.zeros((4, 3))), 1.0)
    inside = normal.mask(array(PARTS)).to_event(1)
    assert count_masked(normal.to_event(1)) == 0
    assert count_masked(inside) == np.sum(~PARTS)
    assert count_masked(normal.to_event(1).mask(array(ROWS))) == 3 * np.sum(~ROWS)
    both = np.sum(~(PARTS & ROWS[:, None]))
    assert count_masked(inside.mask(array(ROWS))) == both
    assert count_masked(inside.expand([4]), array(ROWS)) == both
    assert count_masked(dist.Normal(0.0, 1.0).mask(array(ROWS)).expand([2, 4])) == 2
