"""Define the mean-field guide with the start of variance back-propagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moment_guides.families.mean_field import with_known_options
from moment_guides.families.vbp import LOG_VARIANCE_SPREAD, SCALE, mean_scale
from moment_guides.numpyro.latent_sites import ModelTrace, init_to_network, is_latent, is_real
from moment_guides.numpyro.mc_dropout import weights_of
from moment_guides.numpyro.mean_field import DVIGuide
from moment_guides.numpyro.scales import FastNormal


class VBPGuide(DVIGuide):
    """Mean-field Gaussian guide that starts as variance back-propagation (VBP) does.

    It is ``DVIGuide`` with other initial values: means of weights N(0, 1/fan-in), means
    of biases zero, logarithms of variances N(−9, 10⁻³), the standard deviations being
    0.011. What the fan-in is, is found in a run of the model: the axis that a linear map
    contracts, and all but the last axis of kernels of convolutions. The rules of the
    paper are the objective's: ``DeterministicELBO(covariance="diagonal", rules="vbp")``.

    Biases are optional: they are Gaussian where the model gives them a prior,
    deterministic as in the authors' code where they are parameters of the model.

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
        init_loc_fn: initial locations, a function of a site; by default those above.
        create_plates: optional function that makes the plates, as in NumPyro's guides.
        prefix: part of the parameters' names, as in NumPyro's guides.

    Raises:
        RuntimeError: when called without having met a model.

    Source: Haussmann et al. 2019, appendix B.3.

    Example:
        >>> guide = VBPGuide()
    """

    @with_known_options
    def __init__(
        self,
        model: Callable | None = None,
        *,
        init_loc_fn: Callable | None = None,
        create_plates: Callable | None = None,
        prefix: str = "auto",
    ) -> None:
        super().__init__(
            model,
            init_loc_fn=init_loc_fn or init_to_network,
            init_scale=SCALE,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._starts_as_he = init_loc_fn is None

    def _inspect_model(self, model: Callable, run: ModelTrace, args: tuple, kwargs: dict) -> None:
        if not self._starts_as_he:
            return
        axes = weights_of(model, run.trace, args, kwargs).axes
        for name, site in run.trace.items():
            if is_latent(site) and site["fn"].event_dim and is_real(site["fn"].support):
                scale = mean_scale(site["value"].shape, site["fn"].event_dim, axes.get(name), -1)
                noise = FastNormal(jnp.zeros_like(site["value"]), 1.0)
                site["value"] = scale * noise.sample(site["kwargs"]["rng_key"])

    def _initial_scale(self, location: jax.Array, key: Any) -> jax.Array:
        log_ratio = FastNormal(jnp.zeros_like(location), LOG_VARIANCE_SPREAD / 2).sample(key)
        return SCALE * jnp.exp(log_ratio)
