"""What particles predict of one site together."""

from __future__ import annotations

from moment_calculus.hosts.predictions.marginals import PredictiveMoments
from moment_calculus.hosts.predictions.mixtures import Particles, mixed, mixture_moments
from moment_calculus.hosts.predictions.site import Axes, PredictedSite


class SampledSite(PredictedSite):
    """What particles predict together: a mixture, with equal weights, of the parts.

    The epistemic variance is that of the parts' means, the aleatoric one the mean of theirs.

    Args:
        parts: what every particle predicts, particles on the leading axis of its shape.
    """

    def __init__(self, parts: PredictedSite) -> None:
        (_, *elements), event, summed = parts._axes
        axes = Axes(tuple(elements), event, summed)
        with parts._context():
            given = parts._moments()
            moments = PredictiveMoments(*map(parts._like_mean, mixture_moments(given)))
        particles = Particles(len(elements) + event, given)
        self.parts = parts
        log_density = particles.log_mean(parts._log_density)
        marginal = mixed(parts._marginal, particles)
        super().__init__(
            parts.name, parts.distribution, moments, log_density, marginal, axes, parts._context
        )
