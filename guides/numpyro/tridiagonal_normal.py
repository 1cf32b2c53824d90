"""The posterior of a site of which the elements are a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, constraints

from guides.families import tridiagonal
from guides.families.chained import Chained


class TridiagonalNormal(Chained, Distribution):
    """A Normal whose neighbours in a chain through each event have the correlation ρ, in O(n).

    Args:
        loc: means, [*batch, *event].
        scale: signed scales a, of the same shape: the covariance of neighbours is ρ a_j a_{j+1}.
        correlation: ρ, without axes, in (−½, ½).
        order: of the chain through an event.

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
        """All real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Whether draws are differentiable, which they are in everything."""
        return True

    def expand(self, batch_shape: Sequence[int]) -> TridiagonalNormal:
        """The same with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        loc, scale = jnp.broadcast_to(self.loc, shape), jnp.broadcast_to(self.scale, shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Reparameterised draws.

        Args:
            key: random key.
            sample_shape: shape of the set of draws.
        """
        loc, scale, correlation = self.chains
        noise = jax.random.normal(key, tuple(sample_shape) + loc.shape, loc.dtype)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Log-density, of the batch shape.

        Args:
            value: [..., *event].
            intermediates: ignored.
        """
        return tridiagonal.log_density(self.order.chain(value), *self.chains)
