"""What both front ends offer as it is: verbs and results that need no framework.

A new one is a row of ``PLACES`` and a name in the two lists beside it. Modules are imported when
a name is asked for: most programs never look at a fit after training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moment_inference.criticism.accuracy.accuracy import MomentAccuracy
    from moment_inference.criticism.arviz_access import loo_weights
    from moment_inference.criticism.calibration.calibration import Calibration, calibration
    from moment_inference.criticism.calibration.classes import ClassCalibration
    from moment_inference.criticism.comparison.comparison import Comparison
    from moment_inference.criticism.diagnosis.findings import Diagnosis, Finding
    from moment_inference.criticism.pruning import PruningReport

PLACES = {
    "Calibration": "moment_inference.criticism.calibration.calibration",
    "ClassCalibration": "moment_inference.criticism.calibration.classes",
    "Comparison": "moment_inference.criticism.comparison.comparison",
    "Diagnosis": "moment_inference.criticism.diagnosis.findings",
    "Finding": "moment_inference.criticism.diagnosis.findings",
    "MomentAccuracy": "moment_inference.criticism.accuracy.accuracy",
    "PruningReport": "moment_inference.criticism.pruning",
    "calibration": "moment_inference.criticism.calibration.calibration",
    "loo_weights": "moment_inference.criticism.arviz_access",
}

__all__ = ["Calibration", "ClassCalibration", "Comparison", "Diagnosis", "Finding"]
__all__ += ["MomentAccuracy", "PruningReport", "calibration", "loo_weights"]


def __getattr__(name: str) -> Any:
    """Import the module of a name."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PLACES[name]), name)
