"""Define a Normal whose small draws are not compiled anew for every shape."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from moment_calculus.numerics.private_apis import is_traced

BLOCK = 4096


class PrecompiledNormal(dist.Normal):
    """NumPyro's Normal; small draws outside of ``jax.jit`` come from one compiled program."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Return draws [*sample_shape, *batch], the same as those of ``Normal``."""
        shape = (*sample_shape, *self.batch_shape)
        is_concrete = all(map(_is_concrete, (key, self.loc, self.scale)))
        if not is_concrete or math.prod(shape) > BLOCK or not jax.threefry_partitionable.value:
            return super().sample(key, sample_shape)
        # JAX compiles its generator for every shape, a quarter of a second each, so that
        # to start a guide took longer than many updates. With jax_threefry_partitionable
        # the first numbers of a longer array are those of a shorter one.
        noise = np.asarray(jax.random.normal(key, (BLOCK,)))[: math.prod(shape)].reshape(shape)
        return jnp.asarray(np.asarray(self.loc) + noise * np.asarray(self.scale))


def _is_concrete(value: Any) -> bool:
    return not is_traced(value) and getattr(value, "is_fully_addressable", True)
