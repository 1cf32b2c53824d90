"""Define the Normal prior whose common variance is chosen by empirical Bayes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    Normal,
    constraints,
    kl_divergence,
)
from numpyro.distributions.util import promote_shapes, validate_sample

from moment_calculus.likelihoods.divergences import (
    empirical_bayes_log_prior,
    gaussian_entropy,
    student_t_log_prob,
)
from moment_calculus.numerics.private_apis import is_traced


class EmpiricalBayesNormal(Distribution):
    """Zero-mean Normal prior of one set of weights, with an inverse-Gamma prior on its variance.

    The analytic ELBO puts the variance λ* that is optimal for the current posterior into
    the KL divergence (type-II maximum a posteriori). Everything else, NUTS and prior
    samples included, sees the exact marginal: a multivariate Student-t with 2α degrees of
    freedom and squared scale β/α. One instance is one set: give each weight matrix and
    each bias vector its own.

    Args:
        shape: shape of the set of weights, which is the event shape.
        alpha: shape of the inverse-Gamma hyperprior, positive; an array has one element
            for each set of the batch.
        beta: its scale, positive, a number or an array like ``alpha``.
        batch_shape: shape of the batch of independent sets, or one that broadcasts to it.
        validate_args: whether observations are validated; by default as NumPyro is set.

    Raises:
        ValueError: if ``alpha`` or ``beta`` is not positive.

    Source: Wu et al. 2019, eqs. 11-13; α = 1, β = 10 as in its experiments.

    Example:
        >>> EmpiricalBayesNormal([50, 13]).event_shape
        (50, 13)
    """

    arg_constraints = {"alpha": constraints.positive, "beta": constraints.positive}  # noqa: RUF012
    reparametrized_params = ["alpha", "beta"]  # noqa: RUF012 (NumPyro's own convention)

    def __init__(
        self,
        shape: Sequence[int] = (),
        alpha: Any = 1.0,
        beta: Any = 10.0,
        *,
        batch_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        if not (_may_be_positive(alpha) and _may_be_positive(beta)):
            raise ValueError(f"alpha={alpha} and beta={beta} must both be positive")
        alpha, beta = _as_float(alpha), _as_float(beta)
        batch = jnp.broadcast_shapes(tuple(batch_shape), jnp.shape(alpha), jnp.shape(beta))
        self.alpha, self.beta = promote_shapes(alpha, beta, shape=batch)
        super().__init__(batch, tuple(shape), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        if self.event_dim == 0:
            return constraints.real
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def mean(self) -> jax.Array:
        """Return zero, which for α ≤ ½ is only the median."""
        return jnp.zeros(self.shape())

    @property
    def variance(self) -> jax.Array:
        """Return β/(α − 1), infinite for α ≤ 1."""
        finite = self.beta / jnp.where(self.alpha > 1, self.alpha - 1, 1.0)
        value = jnp.where(self.alpha > 1, finite, jnp.inf)
        return jnp.broadcast_to(self._for_weights(value), self.shape())

    def expand(self, batch_shape: Sequence[int]) -> EmpiricalBayesNormal:
        """Return independent sets, one for each element of the batch shape."""
        if tuple(batch_shape) == self.batch_shape:
            return self
        return EmpiricalBayesNormal(
            self.event_shape,
            self.alpha,
            self.beta,
            batch_shape=batch_shape,
            validate_args=self._validate_args,
        )

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw a variance for every set, then its weights."""
        key_variance, key_weights = jax.random.split(key)
        sets = tuple(sample_shape) + self.batch_shape
        # In logarithms: for small α the precision underflows.
        log_precision = jax.random.loggamma(key_variance, self.alpha, sets) - jnp.log(self.beta)
        scale = self._for_weights(jnp.exp(-0.5 * log_precision))
        return scale * jax.random.normal(key_weights, sets + self.event_shape, scale.dtype)

    @validate_sample
    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Return the log density of the Student-t marginal, of the batch shape.

        Args:
            value: weights, [..., *shape].
            intermediates: ignored, as in NumPyro's distributions.
        """
        squared_norm = jnp.sum(jnp.square(value), axis=self._event_axes)
        count = math.prod(self.event_shape)
        return student_t_log_prob(squared_norm, count, self.alpha, self.beta, _log_gamma)

    def expected_log_prob(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Return E_q[log N(w; 0, λ*)] for independent Gaussian weights, of the batch shape.

        Args:
            mean: posterior means, [..., *shape].
            variance: posterior variances, [..., *shape].
        """
        alpha, beta = self._for_weights(self.alpha), self._for_weights(self.beta)
        return empirical_bayes_log_prior(mean, variance, alpha, beta, self._event_axes)

    @property
    def _event_axes(self) -> tuple[int, ...]:
        return tuple(range(-self.event_dim, 0))

    def _for_weights(self, value: Any) -> Any:
        """Reshape one number per set so that it broadcasts with its weights."""
        if isinstance(value, float):
            return value
        return jnp.reshape(value, jnp.shape(value) + (1,) * self.event_dim)


def _may_be_positive(value: Any) -> bool:
    return is_traced(value) or bool(np.all(np.asarray(value) > 0))


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def _log_gamma(value: Any) -> Any:
    return math.lgamma(value) if isinstance(value, float) else gammaln(value)


@kl_divergence.register(Normal, EmpiricalBayesNormal)
@kl_divergence.register(Independent, EmpiricalBayesNormal)
def _kl_normal_empirical_bayes(q: Any, p: EmpiricalBayesNormal) -> jax.Array:
    """Return the KL divergence with λ* for the prior variance, for NumPyro's own ELBOs."""
    base = q
    while isinstance(base, Independent | ExpandedDistribution):
        base = base.base_dist
    if not isinstance(base, Normal) or q.event_dim != p.event_dim:
        raise NotImplementedError
    entropy = jnp.sum(gaussian_entropy(q.variance), axis=p._event_axes)
    return -entropy - p.expected_log_prob(q.mean, q.variance)
