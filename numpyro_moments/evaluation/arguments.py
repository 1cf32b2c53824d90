"""Check calls and keys, choose the precision, take arrays apart: arguments of many functions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from moment_inference.objectives import Calls


def unwrapped(model: Any) -> Any:
    """Return the function inside NumPyro's handlers."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    return model


def is_untrained(guide: Any, params: Any) -> bool:
    """Return whether a guide has not met a model, and no parameters are given."""
    states = (getattr(guide, name, None) for name in ("_sites", "prototype_trace"))
    return not isinstance(params, Mapping) and all(state is None for state in states)


OF_PYRO = ("pyro.", "pyro_moments.", "moment_guides.pyro.", "torch.")
ADAM = "numpyro.optim.Adam(0.01)"
# Arrays of NumPy become those of JAX where the precision is known.
CALLS = Calls(
    "NumPyro", OF_PYRO, unwrapped, jax.Array, lambda array, double: array, ADAM, is_untrained
)
checked = CALLS.checked


def checked_key(name: str, key: Any) -> Any:
    """Return the random key of the argument ``name``; raise TypeError if it is none."""
    if isinstance(key, jax.Array | np.ndarray):
        typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        if (typed and key.ndim == 0) or (key.dtype == np.uint32 and key.ndim == 1):
            return key
    shape = f" and shape {key.shape}" if hasattr(key, "shape") else ""
    example = key if isinstance(key, int) else 0
    raise TypeError(
        f"{name}={key!r} of type {type(key).__name__}{shape} is not one random key: pass "
        f"{name}=jax.random.key({example})"
    )


@dataclass(frozen=True)
class Precision:
    """A precision of JAX; a call returns a context that computes in it."""

    double: bool  # if not, JAX keeps its current precision

    @classmethod
    def of(cls, params: Any, float64: bool = False) -> Precision:
        """Return double precision if asked for or if a parameter has it, else the current."""
        leaves = jax.tree.leaves(params)
        return cls(float64 or any(getattr(leaf, "dtype", None) == jnp.float64 for leaf in leaves))

    def __call__(self) -> Any:
        """Return the context."""
        return jax.enable_x64(True) if self.double else contextlib.nullcontext()


def in_jax(data: Any, double: bool = False) -> Any:
    """Return arguments with JAX arrays for those of NumPy and torch, in doubles if asked."""

    def converted(part: Any) -> Any:
        # JAX confuses traces of NumPy's arrays in single and in double precision. Without the
        # copy it may take the doubles that it has kept of the same array, in single precision too.
        if hasattr(part, "__array__") and not isinstance(part, jax.Array):
            part = jnp.array(np.asarray(part))
        if not double or not is_array(part) or not jnp.issubdtype(part.dtype, jnp.floating):
            return part
        return part.astype(jnp.float64)

    return jax.tree.map(converted, data)


@dataclass(frozen=True)
class Static:
    """The structure of arguments, and their leaves that are no arrays."""

    structure: Any
    leaves: tuple[tuple[int, Any], ...]  # by index

    def joined(self, arrays: list) -> Any:
        """Return the arguments with arrays, in order, in their places."""
        rest, leaves = dict(self.leaves), iter(arrays)
        indices = range(self.structure.num_leaves)
        parts = [rest[index] if index in rest else next(leaves) for index in indices]
        return jax.tree.unflatten(self.structure, parts)


class Fixed:
    """Arguments with arrays that are constants of a program, which is of these alone."""

    structure = None

    def __init__(self, data: Any) -> None:
        self.data, self.leaves = data, object()

    def joined(self, arrays: list) -> Any:
        """Return the arguments."""
        return self.data


def apart(data: Any) -> tuple[list, Static]:
    """Return the arrays among arguments, and the rest."""
    leaves, structure = jax.tree.flatten(data)
    arrays = [leaf for leaf in leaves if is_array(leaf)]
    rest = tuple((index, leaf) for index, leaf in enumerate(leaves) if not is_array(leaf))
    return arrays, Static(structure, rest)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
