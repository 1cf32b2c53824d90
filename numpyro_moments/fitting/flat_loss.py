"""A NumPyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI

from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.optimisation.rounds import DeterministicLoss
from numpyro_moments._host import evaluate

BATCH_ROOM = 1 << 27  # bytes of concurrent products; more leaves the caches


class Curvature:
    """The Hessian of a function, from its slope, which is a function of parameters [n].

    What does not depend on the direction is computed once for a place, and kept for the
    last one.
    """

    def __init__(self, slope: Callable[[jax.Array], jax.Array]) -> None:
        self.slope = slope
        self._program: Any = None  # jaxpr of a product
        self._fixed: dict[int, jax.Array] = {}  # constants that no place changes
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
        """Return the products with all unit vectors, as many at once as fit."""
        size = place.size
        rounds = -(-size // max(1, BATCH_ROOM // self._bytes()))
        rows = jnp.arange(-(-size // rounds) * rounds).reshape(rounds, -1)  # padded

        def row(index: jax.Array) -> jax.Array:
            return self._product(linearised, jax.nn.one_hot(index, size, dtype=place.dtype))

        return jax.lax.map(jax.vmap(row), rows).reshape(-1, size)[:size]

    def _bytes(self) -> int:
        """Return the bytes of all intermediate results of a product."""
        steps = (part.aval for step in self._program.eqns for part in step.outvars)
        return 1 + sum(math.prod(step.shape) * step.dtype.itemsize for step in steps)


@dataclass(frozen=True)
class FlatLoss:
    """A loss as a function of the unconstrained parameters."""

    svi: SVI  # initialised
    key: Any
    data: tuple  # arguments of model and guide
    named: dict[str, Any]  # their keyword arguments

    def loss(self, params: dict[str, Any], key: Any) -> jax.Array:
        """Return the loss of unconstrained parameters."""
        svi = self.svi
        constrained = svi.constrain_fn(params)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *self.data, **self.named)

    def two_values(self, params: dict[str, Any]) -> tuple[float, float]:
        """Return two values of the loss, which differ if it depends on the random key."""
        flat, unravel = ravel_pytree(params)
        one, other = (self._both(unravel, flat, key)[0] for key in jax.random.split(self.key))
        return float(one), float(other)

    @cached_property
    def _both(self) -> Callable:
        """Return compiled loss and slope of ``unravel``, flat parameters and key."""
        loss = lambda unravel, flat, key: self.loss(unravel(flat), key)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, argnums=1), static_argnums=0)

    def objective(self, flat: jax.Array, unravel: Callable) -> DeterministicLoss:
        """Return the compiled objective for SciPy."""
        curvature = Curvature(jax.grad(lambda x: self.loss(unravel(x), self.key)))
        units = jax.jit(lambda x: ravel_pytree(self._units(unravel(x)))[0])
        dtype, params = flat.dtype, unravel(flat)
        named = scales(params)
        are_scales, _ = ravel_pytree(
            {
                name: jax.tree.map(
                    lambda leaf, is_scale=name in named: jnp.full(jnp.shape(leaf), is_scale), part
                )
                for name, part in params.items()
            }
        )

        def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self._both(unravel, place.astype(dtype), self.key)
            return float(value), np.asarray(slope, np.float64)

        def hessian_product(place: np.ndarray, direction: np.ndarray) -> np.ndarray:
            found = curvature.product(jnp.asarray(place, dtype), jnp.asarray(direction, dtype))
            return np.asarray(found, np.float64)

        return DeterministicLoss(
            value_and_slope,
            lambda place: np.asarray(curvature.dense(jnp.asarray(place, dtype)), np.float64),
            hessian_product,
            lambda place: np.asarray(units(place.astype(dtype)), np.float64),
            float(jnp.finfo(dtype).eps),
            np.asarray(are_scales),
        )

    def _units(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return each location's scale; of scales, what moves their log by one."""
        ones = jax.tree.map(jnp.ones_like, params)
        values, rates = jax.jvp(self.svi.constrain_fn, (params,), (ones,))
        units = dict(ones)
        for name, place in scales(values).items():
            units |= {place: values[name], name: values[name] / rates[name]}
        return units


def scales(params: dict[str, Any]) -> dict[str, str]:
    """Return the names of scales, with those of their locations."""
    pairs = {name: f"{name.removesuffix('_scale')}_loc" for name in params}
    return {
        name: place
        for name, place in pairs.items()
        if name.endswith("_scale")
        and place in params
        and jnp.shape(params[place]) == jnp.shape(params[name])
    }
