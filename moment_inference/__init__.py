"""Inference by moments in any framework: objectives, optimisation, response and criticism."""

from moment_inference import verbs
from moment_inference.errors import (
    WITHOUT_NOISE,
    NarrowerVarianceWarning,
    NotAnOptimum,
    check_parameters,
    unknown_site,
)
from moment_inference.fitting import FitTask, FittingHost, restored
from moment_inference.host import ParameterArray, Quantity, Tree, plate_axes
from moment_inference.particles.drawn_sites import (
    MaskedSite,
    SharedDrawNeeded,
    Site,
    with_shared_draws,
)
from moment_inference.prediction.attribution import (
    Attribution,
    attribution_of,
    moments_with_attribution,
)
from moment_inference.prediction.stored_predictions import as_bytes

__all__ = ["WITHOUT_NOISE", "Attribution", "FitTask", "FittingHost", "MaskedSite"]
__all__ += ["NarrowerVarianceWarning", "NotAnOptimum", "ParameterArray", "Quantity"]
__all__ += ["SharedDrawNeeded", "Site", "Tree", "as_bytes", "attribution_of"]
__all__ += ["check_parameters", "moments_with_attribution", "nested", "plate_axes"]
__all__ += ["restored", "structures", "unknown_site", "verbs", "with_shared_draws"]
