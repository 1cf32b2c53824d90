"""Check a fit after training against exact samplers, draws and the data."""

from moment_inference.criticism import idle_units, model_with_draws, pruning
from moment_inference.criticism.accuracy.accuracy import (
    MomentAccuracy,
    accuracy_of,
    check_draws,
    other_path,
)
from moment_inference.criticism.accuracy.layers import Layer, RecordedOperation, layers_of
from moment_inference.criticism.arviz_access import loo_weights
from moment_inference.criticism.calibration.calibration import Calibration, calibration
from moment_inference.criticism.calibration.classes import ClassCalibration
from moment_inference.criticism.comparison.comparison import Comparison, compare
from moment_inference.criticism.container_verbs import ContainerVerbs
from moment_inference.criticism.diagnosis.checks import run_checks
from moment_inference.criticism.diagnosis.findings import Diagnosis, Finding
from moment_inference.criticism.draws import Arrays, Draws
from moment_inference.criticism.fitted_model import (
    Posterior,
    convert,
    missing_chains_error,
    posterior_type_error,
)
from moment_inference.criticism.fitted_nested import fitted
from moment_inference.criticism.pruning import PruningReport

__all__ = ["Arrays", "Calibration", "ClassCalibration", "Comparison", "ContainerVerbs"]
__all__ += ["Diagnosis", "Draws", "Finding", "Layer", "MomentAccuracy"]
__all__ += ["Posterior", "PruningReport", "RecordedOperation", "accuracy_of", "calibration"]
__all__ += ["check_draws", "compare", "convert", "fitted", "idle_units", "layers_of", "loo_weights"]
__all__ += ["missing_chains_error", "model_with_draws", "other_path", "posterior_type_error"]
__all__ += ["pruning", "run_checks"]
