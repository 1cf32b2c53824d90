"""The Gaussian coordinates of a latent site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from moment_calculus.response.wording import not_gaussian
from moment_calculus.values import Deferred, Gaussian
from numpyro_moments.rules.table import is_random


def location(site: dict, value: Any) -> tuple[jax.Array, jax.Array, Callable, Callable]:
    """Return mean and scale of a site's coordinates, the map to its support, its log-slope.

    The log-slope is the log of the absolute determinant of the map's Jacobian, by element
    if the map works by element.
    """
    if not is_random(value):
        transform = biject_to(site["fn"].support)
        loc = transform.inv(value)

        def log_determinant(points: jax.Array) -> jax.Array:
            return transform.log_abs_det_jacobian(points, transform(points))

        return loc, jnp.zeros_like(loc), transform, log_determinant
    base = value.base if isinstance(value, Deferred) else value
    if not isinstance(base, Gaussian):
        raise not_gaussian(site["name"])
    to_support = value.function if isinstance(value, Deferred) else lambda points: points

    def log_slope(points: jax.Array) -> jax.Array:
        return jnp.log(jnp.abs(jax.jvp(to_support, (points,), (jnp.ones_like(points),))[1]))

    return base.mean, jnp.sqrt(base.variance), to_support, log_slope
