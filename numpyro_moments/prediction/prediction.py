"""Closed-form prediction of one site: moments and log density of what the model observes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions.util import sum_rightmost

from moment_calculus.hosts.docstrings import PREDICTED_SITE, documented
from moment_calculus.hosts.predictions import PredictedSite
from moment_calculus.hosts.wrappers import unwrapped
from numpyro_moments.likelihoods import predictive
from numpyro_moments.sites.transformed import WRAPPERS

_CLASSES = (dist.CategoricalLogits, dist.CategoricalProbs)


@documented("NumPyro", site=PREDICTED_SITE)
class Prediction(PredictedSite):
    """Predictive distribution of one site, as moments and a log density.

    {site}
    """

    def __init__(self, name: str, fn: Any) -> None:
        shape = fn.batch_shape + fn.event_shape
        base, summed = unwrapped(fn, WRAPPERS)
        mean, epistemic, aleatoric, log_prob = predictive(name, base)
        classes = mean.shape[-1:] if isinstance(base, _CLASSES) else ()
        elements = shape[: len(shape) - base.event_dim]

        def wide(part: jax.Array) -> jax.Array:
            return jnp.broadcast_to(part, shape + classes)

        def log_density(value: jax.Array) -> jax.Array:
            found = log_prob(jnp.asarray(value))
            found = jnp.broadcast_to(found, jnp.broadcast_shapes(found.shape, elements))
            return sum_rightmost(found, summed)

        super().__init__(name, fn, wide(mean), wide(epistemic), wide(aleatoric), log_density)
