"""Define the Normal distribution whose neighbouring elements are correlated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, constraints

from guides.families import tridiagonal
from guides.families.tridiagonal_normal import TridiagonalNormalBase


class TridiagonalNormal(TridiagonalNormalBase, Distribution):
    """A Normal whose neighbours in a chain through each event have correlation ρ, in O(n).

    Source: Posch and Pilz 2020.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    pytree_data_fields = ("loc", "scale", "correlation")
    pytree_aux_fields = ("order",)
    reparametrized_params = ["loc", "scale", "correlation"]  # noqa: RUF012

    def __init__(
        self, loc: jax.Array, scale: jax.Array, correlation: jax.Array, order: tridiagonal.Order
    ) -> None:
        shape = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(scale))
        self.loc, self.scale = jnp.broadcast_to(loc, shape), jnp.broadcast_to(scale, shape)
        self.correlation, self.order = correlation, order
        split = len(shape) - len(order.shape)
        super().__init__(shape[:split], shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Return True: draws are differentiable in all parameters."""
        return True

    def expand(self, batch_shape: Sequence[int]) -> TridiagonalNormal:
        """Return the same distribution with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        loc, scale = jnp.broadcast_to(self.loc, shape), jnp.broadcast_to(self.scale, shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Return reparameterised draws [*sample_shape, *batch, *event]."""
        loc, scale, correlation = self.chains
        noise = jax.random.normal(key, tuple(sample_shape) + loc.shape, loc.dtype)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Return the log-density of values [..., *event], [...]."""
        return tridiagonal.log_density(self.order.chain(value), *self.chains)
