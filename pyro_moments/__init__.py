"""Sampling-free Bayesian inference for Pyro by analytic moment propagation."""

try:
    import pyro  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'pyro_moments needs Pyro and PyTorch: pip install "pyro-moments[pyro]"'
    ) from error

from importlib import import_module
from typing import TYPE_CHECKING, Any

from moment_calculus import (
    CaptureWarning,
    CovarianceDroppedWarning,
    DependenceWarning,
    LossByDrawsWarning,
    UnsupportedMoments,
)
from moment_calculus import __version__ as __version__
from moment_calculus.predictions import Moments
from moment_guides.pyro import (
    DVIGuide,
    EmpiricalBayesNormal,
    GaussianGuide,
    Horseshoe,
    HorseshoeReparam,
    LogUniform,
    MCDropoutGuide,
    TridiagonalGuide,
    VBPGuide,
)
from moment_inference import Attribution, NarrowerVarianceWarning, NotAnOptimum, verbs
from moment_inference.optimisation import Fit, Progress, StoredFileError
from pyro_moments import effects, units
from pyro_moments import rules as _rules  # noqa: F401  (registers the rules)
from pyro_moments.draws.starts import init_to_fit
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.fitting.fit import fit
from pyro_moments.fitting.storing import load, save
from pyro_moments.likelihoods.expected import expected_log_prob, predictive_moments
from pyro_moments.objectives.alpha import BBAlphaELBO, RenyiELBO
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.prediction.predict import Prediction, SampledPrediction, predict
from pyro_moments.prediction.propagate import propagate
from pyro_moments.prediction.statistics import (
    AnalyticNorm,
    initialise_from_statistics,
    propagate_statistics,
)
from pyro_moments.rules.table import moment_rule
from pyro_moments.svi import SVI

if TYPE_CHECKING:
    from moment_inference.verbs import *  # noqa: F403  (what is in its __all__)
    from pyro_moments.criticism.inference_data import (
        loo,
        predictive_p_values,
        to_inference_data,
    )
    from pyro_moments.criticism.moment_accuracy import moment_accuracy
    from pyro_moments.criticism.pruning import pruning_report, smaller_network
    from pyro_moments.criticism.verdicts import compare_with_nuts, diagnose
    from pyro_moments.response.linear_response import LinearResponse, linear_response
    from pyro_moments.response.nested import Nested, nested

__all__ = [
    "SVI",
    "AnalyticNorm",
    "Attribution",
    "BBAlphaELBO",
    "CaptureWarning",
    "CovarianceDroppedWarning",
    "DVIGuide",
    "DependenceWarning",
    "DeterministicELBO",
    "EmpiricalBayesNormal",
    "Fit",
    "GaussianGuide",
    "Horseshoe",
    "HorseshoeReparam",
    "LinearResponse",
    "LogUniform",
    "LossByDrawsWarning",
    "MCDropoutGuide",
    "MomentTensor",
    "Moments",
    "NarrowerVarianceWarning",
    "Nested",
    "NotAnOptimum",
    "Prediction",
    "Progress",
    "RenyiELBO",
    "SampledPrediction",
    "StoredFileError",
    "TridiagonalGuide",
    "UnsupportedMoments",
    "VBPGuide",
    "compare_with_nuts",
    "diagnose",
    "effects",
    "expected_log_prob",
    "fit",
    "init_to_fit",
    "initialise_from_statistics",
    "linear_response",
    "load",
    "loo",
    "moment_accuracy",
    "moment_rule",
    "nested",
    "predict",
    "predictive_moments",
    "predictive_p_values",
    "propagate",
    "propagate_statistics",
    "pruning_report",
    "save",
    "smaller_network",
    "to_inference_data",
    "units",
]
__all__ += verbs.__all__

_IMPORTED_ON_REQUEST = {  # what looks at a fit after training
    "pyro_moments.criticism.inference_data": "loo predictive_p_values to_inference_data",
    "pyro_moments.criticism.moment_accuracy": "moment_accuracy",
    "pyro_moments.criticism.pruning": "pruning_report smaller_network",
    "pyro_moments.criticism.verdicts": "compare_with_nuts diagnose",
    "pyro_moments.response.linear_response": "LinearResponse linear_response",
    "pyro_moments.response.nested": "Nested nested",
}


def __getattr__(name: str) -> Any:
    """Import what most programs never ask for."""
    for module, names in _IMPORTED_ON_REQUEST.items():
        if name in names.split():
            return getattr(import_module(module), name)
    if name in verbs.__all__:
        return getattr(verbs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that are exported, imported or not."""
    return sorted({*globals(), *__all__})
