"""The posterior of a weight of which the inputs are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from numpyro.distributions import Distribution, constraints

from guides.families import mc_dropout
from guides.families.masked_wording import no_density
from moment_calculus.operations.dropout.noise import variance_ratio


class DroppedWeight(Distribution):
    """M diag(z) with inverted masks z over the inputs: a posterior that has no density.

    A draw has one mask, which all rows of its inputs share; the moments and the draws that this
    package propagates have one for every row. Both have the same marginals for each row.

    Args:
        loc: M, of the site's shape.
        p: probability to drop, a number or an array without axes.
        design: what is fixed of the site.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    pytree_data_fields = ("loc", "p")
    pytree_aux_fields = ("design",)
    reparametrized_params = ["loc", "p"]  # noqa: RUF012

    def __init__(
        self,
        loc: jax.Array,
        p: Any,
        design: mc_dropout.Design,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = jnp.ndim(loc) - design.event_dim
        shape = jnp.shape(loc)
        super().__init__(shape[:split], shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """All real arrays of the event shape."""
        if self.event_dim == 0:
            return constraints.real
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Whether draws are differentiable, which they are in M."""
        return True

    @property
    def mean(self) -> jax.Array:
        """M."""
        return self.loc

    @property
    def variance(self) -> jax.Array:
        """M² p/(1 − p)."""
        return variance_ratio(self.p) * jnp.square(self.loc)

    def expand(self, batch_shape: Sequence[int]) -> DroppedWeight:
        """The same with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        return DroppedWeight(jnp.broadcast_to(self.loc, shape), self.p, self.design)

    def noise(self, key: jax.Array, shape: Sequence[int]) -> jax.Array:
        """Independent noise z of mean one, such as [rows, in] for every row and input.

        Args:
            key: random key.
            shape: of the noise.
        """
        dtype = jnp.result_type(float, self.loc)
        if self.design.noise == "gaussian":
            return mc_dropout.gaussian(jax.random.normal(key, tuple(shape), dtype), self.p)
        if self.design.temperature is None:
            uniform = jax.random.uniform(key, tuple(shape), dtype)
            return mc_dropout.bernoulli(uniform, self.p)
        tiny = float(jnp.finfo(dtype).eps)
        uniform = jax.random.uniform(key, tuple(shape), dtype, tiny, 1 - tiny)
        return mc_dropout.relaxed(uniform, jnp.asarray(self.p, dtype), self.design.temperature)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Weights under one mask for each draw; differentiable in M, and in p if relaxed.

        Args:
            key: random key.
            sample_shape: shape of the set of draws.
        """
        own = mc_dropout.mask_shape(jnp.shape(self.loc), self.design.axis, self.design.noise)
        return self.loc * self.noise(key, tuple(sample_shape) + own)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Refuse: there is no density.

        Raises:
            UnsupportedMoments: always.
        """
        raise no_density(self.design.site)

    def icdf(self, q: jax.Array) -> jax.Array:
        """Quantiles of each weight.

        Args:
            q: probabilities, broadcastable with the weights.
        """
        if self.design.noise == "gaussian":
            deviation = jnp.sqrt(variance_ratio(self.p)) * jnp.abs(self.loc)
            return self.loc + deviation * ndtri(q)
        kept = self.loc / (1 - self.p)
        below = jnp.where(self.loc < 0, q <= 1 - self.p, q > self.p)
        return jnp.where(below, kept, 0.0)
