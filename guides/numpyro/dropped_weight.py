"""Define the distribution of a weight whose inputs are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from numpyro.distributions import Distribution, constraints

from guides.families import mc_dropout
from guides.families.dropout_texts import no_density
from moment_calculus.operations.dropout.noise import variance_ratio


class DroppedWeight(Distribution):
    """M diag(z) with an inverted mask z over the inputs, for M = loc; it has no density.

    All rows of the inputs share the one mask of a draw. Propagated moments and draws have
    a mask for every row instead: the marginals of each row are the same.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    pytree_data_fields = ("loc", "p")
    pytree_aux_fields = ("design",)
    reparametrized_params = ["loc", "p"]  # noqa: RUF012

    def __init__(
        self,
        loc: jax.Array,
        p: Any,
        design: mc_dropout.MaskedSite,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = jnp.ndim(loc) - design.event_dim
        shape = jnp.shape(loc)
        super().__init__(shape[:split], shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        if self.event_dim == 0:
            return constraints.real
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Return True: draws are differentiable in M."""
        return True

    @property
    def mean(self) -> jax.Array:
        """Return M."""
        return self.loc

    @property
    def variance(self) -> jax.Array:
        """Return M² p/(1 − p)."""
        return variance_ratio(self.p) * jnp.square(self.loc)

    def expand(self, batch_shape: Sequence[int]) -> DroppedWeight:
        """Return the same distribution with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        return DroppedWeight(jnp.broadcast_to(self.loc, shape), self.p, self.design)

    def noise(self, key: jax.Array, shape: Sequence[int]) -> jax.Array:
        """Return independent noise z of mean 1, e.g. [rows, in] for a mask in every row."""
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
        """Draw weights under one mask per draw, differentiably in M, and in p for relaxed masks."""
        own = mc_dropout.mask_shape(jnp.shape(self.loc), self.design.axis, self.design.noise)
        return self.loc * self.noise(key, tuple(sample_shape) + own)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Raise UnsupportedMoments: the distribution has no density."""
        raise no_density(self.design.site)

    def icdf(self, q: jax.Array) -> jax.Array:
        """Return quantiles of each weight; the probabilities broadcast with the weights."""
        if self.design.noise == "gaussian":
            deviation = jnp.sqrt(variance_ratio(self.p)) * jnp.abs(self.loc)
            return self.loc + deviation * ndtri(q)
        scaled = self.loc / (1 - self.p)
        below = jnp.where(self.loc < 0, q <= 1 - self.p, q > self.p)
        return jnp.where(below, scaled, 0.0)
