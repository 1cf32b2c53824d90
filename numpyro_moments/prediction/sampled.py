"""The predictive distribution of one site by particles: a mixture with one part for each."""

from __future__ import annotations

from typing import Any

import jax

from moment_calculus.predictions.mixtures import SampledSite, not_of_particles
from moment_calculus.predictions.site import checked_count
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.prediction.prediction import Prediction


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
