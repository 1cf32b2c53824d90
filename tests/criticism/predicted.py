"""Predictions with certain parameters, by either host, beside observations."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions
import pyro.distributions
import torch

import numpyro_moments
import pyro_moments

ARRAYS = {"pyro": torch.as_tensor, "numpyro": jnp.asarray}
PREDICTIVE_RULES = {"pyro": pyro.distributions, "numpyro": numpyro.distributions}
MODULES = {"pyro": pyro_moments, "numpyro": numpyro_moments}

SIZE = 300
rng = np.random.default_rng(0)
LOC = rng.normal(size=SIZE)
SCALE = np.exp(0.3 * rng.normal(size=SIZE))


def predicted(host, family, *parameters, kind="Prediction", **named):
    """A prediction of site y by a family of a host, with parameters in NumPy."""
    arrays = [ARRAYS[host](part) for part in parameters]
    by_name = {name: ARRAYS[host](part) for name, part in named.items()}
    return getattr(MODULES[host], kind)(
        "y", getattr(PREDICTIVE_RULES[host], family)(*arrays, **by_name)
    )
