"""Predictions of the sites of a model, and moments as users pass and receive them."""

from moment_calculus.predictions import blocks, statistics
from moment_calculus.predictions.marginals import Marginal, VectorMarginal
from moment_calculus.predictions.mixtures import SampledSite, not_of_particles
from moment_calculus.predictions.moments import (
    Moments,
    as_value,
    draws_from,
    moments_of_draws,
    moments_of_value,
    without_gradient,
)
from moment_calculus.predictions.site import (
    ClosedFormSite,
    at_site,
    checked_count,
    summed_log_density,
)

__all__ = ["ClosedFormSite", "Marginal", "Moments", "SampledSite", "VectorMarginal"]
__all__ += ["as_value", "at_site", "blocks", "checked_count", "draws_from", "moments_of_draws"]
__all__ += ["moments_of_value", "not_of_particles", "statistics", "summed_log_density"]
__all__ += ["without_gradient"]
