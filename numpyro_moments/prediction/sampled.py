"""Prediction of one site by particles: a mixture of the distributions that each of them gives."""

from __future__ import annotations

from typing import Any

import jax

from moment_calculus.hosts.docstrings import documented
from moment_calculus.hosts.predictions.docstrings import DRAWN_PARTICLES, SAMPLED_SITE
from moment_calculus.hosts.predictions.sampled import SampledSite
from moment_calculus.hosts.predictions.site import checked_count
from moment_calculus.hosts.predictions.wording import not_of_particles
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.prediction.prediction import Prediction


@documented("NumPyro", site=SAMPLED_SITE)
class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with all that a ``Prediction`` has.

    {site}
    """

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        super().__init__(Prediction(name, fn))

    @documented("NumPyro", drawn=DRAWN_PARTICLES)
    def sample(self, n: int, key: jax.Array) -> jax.Array:
        """Draw from the predictive distribution.

        {drawn}

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
