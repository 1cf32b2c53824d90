"""The distribution of a site as bytes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_inference import as_bytes
from numpyro_moments.likelihoods.structure import random_parameters, stripped


def stored(name: str, fn: Any) -> bytes:
    """Return a site's distribution as bytes; raise UnsupportedMoments if it has no such form."""
    fn = stripped(fn)
    values = [(value, axes > 0) for value, axes in random_parameters(fn)]
    return as_bytes(name, fn, values, _reduce)


def _reduce(array: Any) -> Any:
    """Return what to pickle of an array, so that it keeps its precision when it is read."""
    # JAX's class of literals, one of NumPy's arrays, pickles only once.
    is_literal = isinstance(array, np.ndarray) and type(array) is not np.ndarray
    if is_literal or isinstance(array, jax.Array):
        return jnp.asarray, (np.array(array),)
    return NotImplemented
