"""A NumPyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI

from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.optimisation.rounds import DeterministicLoss
from numpyro_moments._host import evaluate

# Bytes of Hessian products computed together; more would not fit the caches.
MAX_BATCH_BYTES = 1 << 27


class Hessian:
    """Dense Hessian and Hessian-vector products of a function, from its gradient.

    The linearisation at a point is computed once; the last one is cached.
    """

    def __init__(self, gradient: Callable[[jax.Array], jax.Array]) -> None:
        self.gradient = gradient  # a function of parameters [n]
        self._program: Any = None  # jaxpr of a product
        self._constants: dict[int, jax.Array] = {}  # the same at every point, by position
        self._compiled_linearise = jax.jit(self._linearise)
        self._compiled_product = jax.jit(self._product)
        self._compiled_dense = jax.jit(self._products)
        self._cache: tuple[bytes, list[jax.Array]] | None = None

    def product(self, point: jax.Array, direction: jax.Array) -> jax.Array:
        """Return the product of the Hessian at a point with a direction."""
        return self._compiled_product(self._linearisation(point), direction)

    def dense(self, point: jax.Array) -> jax.Array:
        """Return the Hessian at a point."""
        return self._compiled_dense(self._linearisation(point), point)

    def _linearisation(self, point: jax.Array) -> list[jax.Array]:
        key = point.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = None  # frees the memory before the next linearisation
            self._cache = key, self._compiled_linearise(point)
        return self._cache[1]

    def _linearise(self, point: jax.Array) -> list[jax.Array]:
        product = jax.linearize(self.gradient, point)[1]
        closed = jax.make_jaxpr(product)(point)
        traced = [is_traced(const) for const in closed.consts]
        # These are the same at each tracing, so that it does no harm to keep them.
        self._program = closed.jaxpr
        self._constants = {i: c for i, c in enumerate(closed.consts) if not traced[i]}
        return [const for i, const in enumerate(closed.consts) if traced[i]]

    def _product(self, linearised: list[jax.Array], direction: jax.Array) -> jax.Array:
        rest = iter(linearised)
        positions = range(len(linearised) + len(self._constants))
        consts = [self._constants[i] if i in self._constants else next(rest) for i in positions]
        return evaluate(self._program, consts, direction)[0]

    def _products(self, linearised: list[jax.Array], point: jax.Array) -> jax.Array:
        """Return the dense Hessian, by products in batches that fit the caches."""
        size = point.size
        rounds = -(-size // max(1, MAX_BATCH_BYTES // self._bytes()))
        rows = jnp.arange(-(-size // rounds) * rounds).reshape(rounds, -1)  # padded

        def row(index: jax.Array) -> jax.Array:
            return self._product(linearised, jax.nn.one_hot(index, size, dtype=point.dtype))

        return jax.lax.map(jax.vmap(row), rows).reshape(-1, size)[:size]

    def _bytes(self) -> int:
        """Return the bytes of all intermediate results of a product, never zero."""
        outputs = [output.aval for step in self._program.eqns for output in step.outvars]
        return 1 + sum(math.prod(output.shape) * output.dtype.itemsize for output in outputs)


@dataclass(frozen=True)
class FlatLoss:
    """A loss as a function of the unconstrained parameters."""

    svi: SVI  # initialised
    key: Any
    args: tuple  # of model and guide
    kwargs: dict[str, Any]

    def loss(self, params: dict[str, Any], key: Any) -> jax.Array:
        """Return the loss of unconstrained parameters."""
        svi = self.svi
        constrained = svi.constrain_fn(params)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *self.args, **self.kwargs)

    def two_values(self, params: dict[str, Any]) -> tuple[float, float]:
        """Return two values of the loss, which differ if it depends on the random key."""
        flat, unravel = ravel_pytree(params)
        one, other = (
            self._value_and_grad(unravel, flat, key)[0] for key in jax.random.split(self.key)
        )
        return float(one), float(other)

    @cached_property
    def _value_and_grad(self) -> Callable:
        """Compiled loss and gradient, as a function of unravel, flat parameters and key."""
        loss = lambda unravel, flat, key: self.loss(unravel(flat), key)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, argnums=1), static_argnums=0)

    def objective(self, flat: jax.Array, unravel: Callable) -> DeterministicLoss:
        """Return the compiled objective for SciPy."""
        hessian = Hessian(jax.grad(lambda x: self.loss(unravel(x), self.key)))
        units = jax.jit(lambda x: ravel_pytree(self._units(unravel(x)))[0])
        dtype, params = flat.dtype, unravel(flat)

        def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._value_and_grad(unravel, point.astype(dtype), self.key)
            return float(value), np.asarray(gradient, np.float64)

        def hessian_product(point: np.ndarray, direction: np.ndarray) -> np.ndarray:
            product = hessian.product(jnp.asarray(point, dtype), jnp.asarray(direction, dtype))
            return np.asarray(product, np.float64)

        return DeterministicLoss(
            value_and_gradient,
            lambda point: np.asarray(hessian.dense(jnp.asarray(point, dtype)), np.float64),
            hessian_product,
            lambda point: np.asarray(units(point.astype(dtype)), np.float64),
            float(jnp.finfo(dtype).eps),
            _scale_mask(params),
        )

    def _units(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return steps: a location's scale; for a scale, the change that moves its log by 1."""
        ones = jax.tree.map(jnp.ones_like, params)
        values, rates = jax.jvp(self.svi.constrain_fn, (params,), (ones,))
        units = dict(ones)
        for name, location in locations_by_scale(values).items():
            units |= {location: values[name], name: values[name] / rates[name]}
        return units


def _scale_mask(params: dict[str, Any]) -> np.ndarray:
    """Return which components of the flat parameters belong to scales."""
    locations = locations_by_scale(params)

    def mask(leaf: Any, is_scale: bool) -> jax.Array:
        return jnp.full(jnp.shape(leaf), is_scale)

    masks = {
        name: jax.tree.map(partial(mask, is_scale=name in locations), part)
        for name, part in params.items()
    }
    return np.asarray(ravel_pytree(masks)[0])


def locations_by_scale(params: dict[str, Any]) -> dict[str, str]:
    """Return the location parameter's name by scale parameter, paired by suffix."""
    pairs = {name: f"{name.removesuffix('_scale')}_loc" for name in params}
    return {
        name: location
        for name, location in pairs.items()
        if name.endswith("_scale")
        and location in params
        and jnp.shape(params[location]) == jnp.shape(params[name])
    }
