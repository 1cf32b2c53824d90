"""Predictive distributions of one site: in closed form, and by particles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions.util import sum_rightmost

from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.predictions.marginals import Marginal, PredictiveMoments
from moment_calculus.predictions.mixtures import SampledSite, not_of_particles
from moment_calculus.predictions.site import Axes, PredictedSite, checked_count, no_draws
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods import marginal, moments_and_law, univariate
from numpyro_moments.likelihoods.structure import has_moments, restored
from numpyro_moments.sites.terms import WRAPPERS

_CLASSES = (dist.CategoricalLogits, dist.CategoricalProbs)


class Prediction(PredictedSite):
    """Predictive distribution of one site, as moments, a log density, quantiles and draws.

    For classes the moments are those of the one-hot outcome: ``mean`` holds the
    probabilities, ``epistemic_variance`` what of p(1 − p) comes from not knowing the
    weights. Moments that do not exist are NaN or infinite: a Cauchy or a Student with one
    degree of freedom or less has no mean, and with two or less infinite
    ``aleatoric_variance``; it has quantiles.

    Args:
        name: the site.
        fn: its distribution, with random parameters.

    Raises:
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    def __init__(self, name: str, fn: Any) -> None:
        shape = fn.batch_shape + fn.event_shape
        base, summed = unwrapped(fn, WRAPPERS)
        *parts, law = moments_and_law(name, base)
        log_prob = getattr(law, "log_prob", law)
        classes = parts[0].shape[-1:] if isinstance(base, _CLASSES) else ()
        elements = shape[: len(shape) - base.event_dim]

        def log_density(value: jax.Array) -> jax.Array:
            found = log_prob(jnp.asarray(value))
            found = jnp.broadcast_to(found, jnp.broadcast_shapes(found.shape, elements))
            return sum_rightmost(found, summed)

        moments = PredictiveMoments(*(jnp.broadcast_to(part, shape + classes) for part in parts))
        known, axes = marginal(name, base), Axes(elements, base.event_dim, summed)
        super().__init__(name, fn, moments, log_density, known, axes, Precision.of(parts[0]))
        self._base, self._law, self._elements = base, law, elements

    def sample(self, n: int, key: jax.Array) -> jax.Array:
        """Draw from the predictive distribution of every element.

        What an element depends on is drawn from the posterior, then the element from the
        likelihood: exact draws of its own predictive distribution, epistemic and
        aleatoric
            together. They are not
        joint draws of several elements: what two rows share, because one set of weights
        predicts both, is not in them. For functions of several rows (sums, maxima, paths)
        draw the weights with NumPyro's ``Predictive``.

        Args:
            n: how many draws.
            key: random key.

        Returns:
            Array [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            TypeError: if ``key`` is no key.
            UnsupportedMoments: if the predictive moments are of a rule of your own that
                returns a log density, not a distribution.
        """
        with self._context():
            return self._drawn(checked_count(n), checked_key("key", key))

    def _drawn(self, count: int, key: jax.Array) -> jax.Array:
        if hasattr(self._law, "sample"):
            return self._law.expand(self._elements).sample(key, (count,))
        if not has_moments(self._base):
            return restored(self.distribution).sample(key, (count,))
        if type(self._marginal) is Marginal:
            raise no_draws(self.name, type(self._base).__name__, framework="NumPyro")
        found = univariate.draw_observations(self._base, key, count, self._elements)
        floating = jnp.issubdtype(found.dtype, jnp.floating)
        return found.astype(self.mean.dtype) if floating else found


class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with the interface of ``Prediction``.

    A mixture with equal weights: ``mean`` is the mean of the particles' means and
    ``epistemic_variance`` their variance, ``aleatoric_variance`` the mean of the
    particles' variances. ``log_prob`` is the logarithm of the mean density, of all
    elements of an event together. Quantiles invert the mixture's own distribution
    function; ``credible_interval`` is between quantiles of the particles' means, by
    Hazen's rule, and no wider than these.

    Args:
        name: the site.
        fn: its distribution, whose batch shape begins with the particles.

    Raises:
        ValueError: if the batch shape is empty, or a parameter is random: then there are
            no particles.
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        super().__init__(Prediction(name, fn))

    def sample(self, n: int, key: jax.Array) -> jax.Array:
        """Draw from the predictive distribution.

        A draw is of one particle in all its elements, and so a joint draw of several
        rows. Every particle has equally many draws, or one more than others, in random
        order.

        Args:
            n: how many draws.
            key: random key.

        Returns:
            Array [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            TypeError: if ``key`` is no key.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        rounds = -(-count // particles)
        of_drawing, of_order = jax.random.split(checked_key("key", key))
        with self._context():
            drawn = restored(self.distribution).sample(of_drawing, (rounds,))
            drawn = drawn.reshape(rounds * particles, *drawn.shape[2:])
            return drawn[jax.random.permutation(of_order, len(drawn))[:count]]
