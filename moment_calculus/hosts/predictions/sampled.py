"""Combine the predictions of particles for one site into a mixture."""

from __future__ import annotations

from moment_calculus.hosts.predictions.marginals import PredictiveMoments
from moment_calculus.hosts.predictions.mixtures import Particles, mixed, mixture_moments
from moment_calculus.hosts.predictions.site import Axes, PredictedSite


class SampledSite(PredictedSite):
    """Prediction of a site by a mixture, with equal weights, of predictions ``parts`` by particles.

    The particles are the leading axis of ``parts``. The variance of their means counts as
    epistemic, the mean of their aleatoric variances as aleatoric (law of total variance).
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
