"""Choose the initial locations of a guide."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to
from numpyro.infer.util import helpful_support_errors

from guides.families.initialization import initial_noise_scale
from guides.numpyro.supports import is_real


def init_to_network(site: dict | None = None) -> Any:
    """Start at the prior mean; break the symmetry of weights and spread the kinks of ReLUs.

    The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the
    symmetry between hidden units whichever axis is the input; that of vectors ½, because
    units whose kinks all start at zero keep a network nearly linear until its noise has
    absorbed what it cannot fit. Neither exceeds the prior's standard deviation. Scalars
    start at the prior mean, sites with constrained support where their unconstrained
    value is zero.

    Args:
        site: NumPyro sample site; without one the function itself is returned, as
            NumPyro's initialisers do.

    Returns:
        Initial value of the site; None for a site that is observed or discrete.

    Source: Glorot and Bengio 2010, eq. 12.
    """
    if site is None:
        return partial(init_to_network)
    fn = site["fn"]
    if site["type"] != "sample" or site["is_observed"] or fn.support.is_discrete:
        return None
    with helpful_support_errors(site):
        transform = biject_to(fn.support)
    shape = fn.shape(site["kwargs"].get("sample_shape", ()))
    unconstrained = transform.inverse_shape(shape)
    if unconstrained != shape or not is_real(fn.support):
        return transform(jnp.zeros(unconstrained))
    return _location(fn, shape) + _noise(fn, shape, site["kwargs"].get("rng_key"))


def _location(fn: Any, shape: tuple[int, ...]) -> jax.Array:
    try:
        mean = jnp.broadcast_to(fn.mean, shape)
    except (NotImplementedError, ValueError):
        return jnp.zeros(shape)
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def _noise(fn: Any, shape: tuple[int, ...], key: Any) -> jax.Array:
    limit = initial_noise_scale(fn.event_dim, shape)
    if limit == 0:
        return jnp.zeros(shape)
    noise = jax.random.normal(key, shape)
    try:
        variance = jnp.broadcast_to(fn.variance, shape)
    except (NotImplementedError, ValueError):
        return limit * noise
    return jnp.fmin(jnp.sqrt(variance), limit) * noise
