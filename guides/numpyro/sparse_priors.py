"""Define the sparse priors: the horseshoe, its hierarchy for NUTS, and the log-uniform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import Distribution, Normal, constraints, kl_divergence
from numpyro.distributions.util import promote_shapes, validate_sample
from numpyro.infer.reparam import Reparam

from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_calculus.numerics.private_apis import is_traced
from moment_guides.families import sparse_priors
from moment_guides.families.sparse_priors import improper_prior, observed_horseshoe
from moment_guides.numpyro.scales import FastNormal


class Horseshoe(Distribution):
    """Horseshoe prior of independent weights, with its local scales integrated out.

    w = scale · λ · z with a half-Cauchy λ and a standard normal z, one of each for every
    weight. Its density has a pole at zero and the tails of a Cauchy: small weights are
    shrunk to nothing, large ones hardly. The analytic ELBO takes the divergence of a
    Gaussian from the marginal density, to 1e-8 nat in float64 and 1e-5 nat in float32 for
    weights up to 1e6 scales. ``log_prob`` is the marginal density, held within 1e-10
    scales of its pole. NUTS mixes better on the hierarchy: see :class:`HorseshoeReparam`.

    Args:
        scale: global scale τ, positive, a number or one for each weight. A guess of p₀ real
            weights among D, n data of noise σ, and inputs of variance 1 leads to
            τ = p₀/(D − p₀) · σ/√n (Piironen and Vehtari 2017).
        validate_args: whether observations are validated; by default as NumPyro is set.

    Raises:
        ValueError: if ``scale`` is not positive.

    Source: Carvalho, Polson and Scott 2010.

    Example:
        >>> Horseshoe(0.1).expand([20]).to_event(1).event_shape
        (20,)
    """

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012 (NumPyro's own convention)
    support = constraints.real
    reparametrized_params = ["scale"]  # noqa: RUF012 (NumPyro's own convention)
    has_pole = True

    def __init__(self, scale: Any = 1.0, *, validate_args: bool | None = None) -> None:
        if isinstance(scale, int | float | np.ndarray | jax.Array) and not (
            is_traced(scale) or bool(np.all(np.asarray(scale) > 0))
        ):
            raise ValueError(f"scale={scale} must be positive")
        (self.scale,) = promote_shapes(scale)
        super().__init__(jnp.shape(scale), validate_args=validate_args)

    @property
    def mean(self) -> jax.Array:
        """Return zero, which is only the median."""
        return jnp.zeros(self.batch_shape)

    @property
    def variance(self) -> jax.Array:
        """Return infinity."""
        return jnp.full(self.batch_shape, jnp.inf)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw a local scale for every weight, then the weight."""
        shape = tuple(sample_shape) + self.batch_shape
        local, standard = jax.random.split(key)
        local_scales = jnp.abs(jax.random.cauchy(local, shape))
        return self.scale * local_scales * jax.random.normal(standard, shape)

    @validate_sample
    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Return the log density of the weights, their scales integrated out.

        Args:
            value: weights, [..., *batch_shape].
            intermediates: ignored, as in NumPyro's distributions.
        """
        return sparse_priors.horseshoe_log_prob(jnp.asarray(value), self.scale)

    def expected_log_prob(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Return E_q[log p(w)] of Gaussian weights, [..., *batch_shape].

        Args:
            mean: posterior means, [..., *batch_shape].
            variance: posterior variances, [..., *batch_shape].
        """
        return sparse_priors.horseshoe(mean, variance, self.scale)


class HorseshoeReparam(Reparam):
    """Sample a :class:`Horseshoe` site as its hierarchy, w = scale · λ · z.

    The site becomes a function of ``{name}_local``, the half-Cauchy λ, and
    ``{name}_standard``, the normal z. The prior of the site is the same.

    Example:
        >>> from numpyro import handlers
        >>> def model():
        ...     return numpyro.sample("w", Horseshoe(0.1).expand([20]).to_event(1))
        >>> hierarchy = handlers.reparam(model, config={"w": HorseshoeReparam()})
        >>> sorted(handlers.trace(handlers.seed(hierarchy, 0)).get_trace())
        ['w', 'w_local', 'w_standard']
    """

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, jax.Array]:
        """Return the site as a function of its scale and its standard weight.

        Args:
            name: name of the site.
            fn: its distribution.
            obs: its observation, which is refused.

        Returns:
            None, and the value of the site, as NumPyro takes them.

        Raises:
            TypeError: if the site is no Horseshoe.
            UnsupportedMoments: if it is observed.
        """
        prior, shape, event_dim = self._unwrap(fn)
        if not isinstance(prior, Horseshoe):
            raise TypeError(f"HorseshoeReparam: site '{name}' is a {type(prior).__name__}")
        if obs is not None:
            raise observed_horseshoe(name)
        parts = {"local": dist.HalfCauchy(1.0), "standard": dist.Normal(0.0, 1.0)}
        local, standard = (
            numpyro.sample(f"{name}_{part}", self._wrap(fn, shape, event_dim))
            for part, fn in parts.items()
        )
        return None, prior.scale * local * standard


class LogUniform(Distribution):
    """Log-uniform prior of independent weights, p(w) = c/|w|: it has no scale to choose.

    The analytic ELBO takes the divergence of a Gaussian N(m, v) from it in closed form, up
    to 1e-10 nat in float64 and 1e-5 nat in float32. It depends on m²/v alone, grows as
    log |m|/√v, and is zero at m = 0, which chooses the constant c. Weights that the data do
    not need end there, and can be left out: ``pruning_report``. The prior is improper, and
    with it the posterior of the weights: the divergence makes a good penalty, not a bound
    of the evidence, and everything that needs draws or a posterior refuses it: prior
    samples, NUTS, ``Trace_ELBO``. :class:`Horseshoe` is a proper prior of its kind.

    It holds no array: the dtype is that of the weights.

    Args:
        validate_args: ignored: the log density is refused.

    Source: Kingma, Salimans and Welling 2015; Molchanov, Ashukha and Vetrov 2017, whose
        eq. 14 is a fit to this divergence with errors up to 0.0094 nat.

    Example:
        >>> LogUniform().expand([50, 13]).to_event(2).event_shape
        (50, 13)
    """

    support = constraints.real
    has_pole = is_improper = True

    def __init__(self, *, validate_args: bool | None = None) -> None:
        super().__init__(validate_args=False)

    def sample(self, key: jax.Array, sample_shape: Sequence[int] = ()) -> jax.Array:
        """Raise NotImplementedError: the prior is improper."""
        raise NotImplementedError(str(improper_prior("draws")))

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """Raise UnsupportedMoments: the prior is improper."""
        raise improper_prior("log density")

    def expected_log_prob(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Return E_q[log p(w)] of Gaussian weights, [..., *batch_shape].

        Args:
            mean: posterior means, [..., *batch_shape].
            variance: posterior variances, [..., *batch_shape].
        """
        return sparse_priors.log_uniform(mean, variance)


@kl_divergence.register(Normal, Horseshoe)
@kl_divergence.register(FastNormal, Horseshoe)
@kl_divergence.register(Normal, LogUniform)
@kl_divergence.register(FastNormal, LogUniform)
def _kl_normal_sparse(q: Any, p: Horseshoe | LogUniform) -> jax.Array:
    """Return the KL divergence of each weight, for NumPyro's own ELBOs."""
    return -gaussian_entropy(q.variance) - p.expected_log_prob(q.mean, q.variance)
