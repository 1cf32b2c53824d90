"""Training in both front ends: data of every step, loop, minimisation, files."""

from moment_inference.optimisation import batches, minimiser, precision
from moment_inference.optimisation.compilation import compilation
from moment_inference.optimisation.options import LEARNING_RATE, STRETCH, Options
from moment_inference.optimisation.outcome import (
    INVALID,
    Course,
    Fit,
    FitVerbs,
    check_dictionary,
    check_fit,
    knows_sites,
    of_fit,
)
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.optimisation.storage import trainings
from moment_inference.optimisation.storage.files import StoredFileError
from moment_inference.optimisation.training import Progress, ProgressBar
from moment_inference.optimisation.weighting import PlateScaling, scale_by, weight_site

__all__ = ["INVALID", "LEARNING_RATE", "STRETCH", "Course", "DeterministicLoss", "Fit"]
__all__ += ["FitVerbs", "Options", "PlateScaling", "Progress", "ProgressBar"]
__all__ += ["StoredFileError", "batches", "check_dictionary", "check_fit"]
__all__ += ["compilation", "knows_sites", "minimiser", "of_fit", "precision", "scale_by"]
__all__ += ["trainings", "weight_site"]
