"""A NumPyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI

from moment_calculus.optimisation.minimiser import BY_ADAM, check_deterministic
from moment_calculus.optimisation.rounds import DeterministicLoss
from numpyro_moments.fitting.curvature import Curvature


@dataclass(frozen=True)
class FlatLoss:
    """A loss as a function of the unconstrained parameters."""

    svi: SVI  # initialised
    key: Any
    data: tuple  # arguments of model and guide
    named: dict[str, Any]  # their keyword arguments

    def starting(self, state: Any) -> tuple[jax.Array, Callable]:
        """Return the parameters of a state as a vector, and what makes them a dictionary again."""
        return ravel_pytree(self.svi.optim.get_params(state.optim_state))

    def loss(self, params: dict[str, Any], key: Any) -> jax.Array:
        """Return the loss of unconstrained parameters."""
        svi = self.svi
        constrained = svi.constrain_fn(params)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *self.data, **self.named)

    def check_deterministic(self, params: dict[str, Any], remedy: str = BY_ADAM) -> None:
        """Raise ValueError if the loss depends on the random key."""
        check_deterministic(*self.twice(params), remedy)

    def twice(self, params: dict[str, Any]) -> tuple[float, float]:
        """Return two values of the loss, which differ if it depends on the random key."""
        flat, unravel = ravel_pytree(params)
        one, other = (self._both(unravel, flat, key)[0] for key in jax.random.split(self.key))
        return float(one), float(other)

    @cached_property
    def _both(self) -> Callable:
        """Return loss and slope as a compiled function of ``unravel``, flat parameters and key."""
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
        """Return the scale of each location; of scales what changes their logarithm by one."""
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
