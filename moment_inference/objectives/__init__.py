"""Building blocks of objectives: the data and their plates, power means, options, checks."""

from moment_inference.objectives import choices, data_plates, observations, remembered, starts
from moment_inference.objectives.arguments import each_argument
from moment_inference.objectives.by_draws import SEED, Evaluations
from moment_inference.objectives.calls import Calls
from moment_inference.objectives.failure_causes import Diagnosis
from moment_inference.objectives.last_map import sites_to_draw
from moment_inference.objectives.posteriors import LatentTerms, Posteriors, at_site
from moment_inference.objectives.remembered import described

__all__ = ["SEED", "Calls", "Diagnosis", "Evaluations", "LatentTerms", "Posteriors"]
__all__ += ["at_site", "choices", "data_plates", "described", "each_argument", "observations"]
__all__ += ["remembered", "sites_to_draw", "starts"]
