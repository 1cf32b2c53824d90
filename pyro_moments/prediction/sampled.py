"""The predictive distribution of one site by particles: a mixture with one part for each."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.hosts.docstrings import documented
from moment_calculus.hosts.predictions.docstrings import DRAWN_PARTICLES, SAMPLED_SITE
from moment_calculus.hosts.predictions.sampled import SampledSite
from moment_calculus.hosts.predictions.site import checked_count
from moment_calculus.hosts.predictions.wording import not_of_particles
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.prediction.prediction import Prediction, plainly


@documented("Pyro", site=SAMPLED_SITE)
class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with the interface of ``Prediction``.

    {site}
    """

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        with plainly():
            super().__init__(Prediction(name, fn))

    @documented("Pyro", drawn=DRAWN_PARTICLES)
    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution, with torch's global generator.

        {drawn}

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        with plainly():
            drawn = self.distribution.sample((-(-count // particles),)).flatten(0, 1)
            return drawn[torch.randperm(len(drawn), device=drawn.device)[:count]]
