"""Normals whose draws need no compiling before anything else is compiled."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

BLOCK = 4096


class StartedNormal(dist.Normal):
    """NumPyro's Normal; small draws outside of ``jax.jit`` come from one compiled program.

    JAX compiles its generator for every shape, a quarter of a second each, and what is done with
    the draws on top: to start a guide of some sites took longer than many updates. The draws are
    those of ``Normal``, as JAX's generator numbers its outputs (``jax_threefry_partitionable``).
    """

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw.

        Args:
            key: random key.
            sample_shape: shape of the set of draws.
        """
        shape = (*sample_shape, *self.batch_shape)
        known = all(map(_is_known, (key, self.loc, self.scale)))
        if not known or math.prod(shape) > BLOCK or not jax.threefry_partitionable.value:
            return super().sample(key, sample_shape)
        noise = np.asarray(jax.random.normal(key, (BLOCK,)))[: math.prod(shape)].reshape(shape)
        return jnp.asarray(np.asarray(self.loc) + noise * np.asarray(self.scale))


def _is_known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and getattr(value, "is_fully_addressable", True)
