"""The predictive distribution of one site by particles: a mixture with one part for each."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.predictions.mixtures import SampledSite, not_of_particles
from moment_calculus.predictions.site import checked_count
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.prediction.prediction import Prediction, without_gradients


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
        with without_gradients():
            super().__init__(Prediction(name, fn))

    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution, with torch's global generator.

        A draw is of one particle in all its elements, and so a joint draw of several
        rows. Every particle has equally many draws, or one more than others, in random
        order.

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        with without_gradients():
            drawn = self.distribution.sample((-(-count // particles),)).flatten(0, 1)
            return drawn[torch.randperm(len(drawn), device=drawn.device)[:count]]
