"""The Hessian of a loss and its products with directions, from one linearisation of the slope."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.numerics.derivatives.private_apis import is_traced
from numpyro_moments._host import evaluate

BATCH_ROOM = 1 << 27  # bytes of intermediate results of concurrent products; more leaves the caches


class Curvature:
    """The Hessian of a function, from its slope, which is a function of parameters [n].

    What does not depend on the direction is computed once for a place, and kept for the
    last one.
    """

    def __init__(self, slope: Callable[[jax.Array], jax.Array]) -> None:
        self.slope = slope
        self._program: Any = None  # jaxpr of a product
        self._fixed: dict[int, jax.Array] = {}  # its constants that no place changes, by index
        self._linearised = jax.jit(self._linearise)
        self._along, self._dense = jax.jit(self._product), jax.jit(self._products)
        self._known: tuple[bytes, list[jax.Array]] | None = None

    def product(self, place: jax.Array, direction: jax.Array) -> jax.Array:
        """Return the product of the Hessian at a place with a direction."""
        return self._along(self._at(place), direction)

    def dense(self, place: jax.Array) -> jax.Array:
        """Return the Hessian at a place."""
        return self._dense(self._at(place), place)

    def _at(self, place: jax.Array) -> list[jax.Array]:
        key = place.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = None  # frees the memory before the next linearisation
            self._known = key, self._linearised(place)
        return self._known[1]

    def _linearise(self, place: jax.Array) -> list[jax.Array]:
        product = jax.linearize(self.slope, place)[1]
        closed = jax.make_jaxpr(product)(place)
        traced = [is_traced(const) for const in closed.consts]
        self._program = closed.jaxpr
        self._fixed = {i: c for i, c in enumerate(closed.consts) if not traced[i]}
        return [const for i, const in enumerate(closed.consts) if traced[i]]

    def _product(self, linearised: list[jax.Array], direction: jax.Array) -> jax.Array:
        rest = iter(linearised)
        places = range(len(linearised) + len(self._fixed))
        consts = [self._fixed[i] if i in self._fixed else next(rest) for i in places]
        return evaluate(self._program, consts, direction)[0]

    def _products(self, linearised: list[jax.Array], place: jax.Array) -> jax.Array:
        """Return the products with all unit vectors, as many at once as :data:`ROOM` allows."""
        size = place.size
        rounds = -(-size // max(1, BATCH_ROOM // self._bytes()))
        rows = jnp.arange(-(-size // rounds) * rounds).reshape(rounds, -1)  # beyond the last: zeros

        def row(index: jax.Array) -> jax.Array:
            return self._product(linearised, jax.nn.one_hot(index, size, dtype=place.dtype))

        return jax.lax.map(jax.vmap(row), rows).reshape(-1, size)[:size]

    def _bytes(self) -> int:
        """Return the bytes of all intermediate results of a product."""
        steps = (part.aval for step in self._program.eqns for part in step.outvars)
        return 1 + sum(math.prod(step.shape) * step.dtype.itemsize for step in steps)
