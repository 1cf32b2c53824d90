"""Sampling-free Bayesian inference for NumPyro by analytic moment propagation."""

try:
    import jax  # noqa: F401
    import numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        'numpyro_moments needs NumPyro and JAX: pip install "pyro-moments[numpyro]"'
    ) from error

from importlib import import_module
from typing import TYPE_CHECKING, Any

from moment_calculus import (
    CovarianceDroppedWarning,
    DependenceWarning,
    LossByDrawsWarning,
    UnsupportedMoments,
)
from moment_calculus import __version__ as __version__
from moment_calculus.predictions import Moments
from moment_guides.numpyro import (
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
from numpyro_moments import effects, units
from numpyro_moments import rules as _rules  # noqa: F401  (registers the rules)
from numpyro_moments.draws.starts import init_to_fit
from numpyro_moments.fitting.fit import fit
from numpyro_moments.fitting.storing import load, save
from numpyro_moments.likelihoods.expected import expected_log_prob, predictive_moments
from numpyro_moments.objectives.alpha import BBAlphaELBO, RenyiELBO
from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.prediction.predict import Prediction, SampledPrediction, predict
from numpyro_moments.prediction.propagate import propagate
from numpyro_moments.rules.table import moment_rule
from numpyro_moments.svi import SVI

if TYPE_CHECKING:
    from moment_inference.verbs import *  # noqa: F403  (what is in its __all__)
    from numpyro_moments.criticism.inference_data import (
        loo,
        predictive_p_values,
        to_inference_data,
    )
    from numpyro_moments.criticism.moment_accuracy import moment_accuracy
    from numpyro_moments.criticism.pruning import pruning_report, smaller_network
    from numpyro_moments.criticism.verdicts import compare_with_nuts, diagnose
    from numpyro_moments.prediction.statistics import (
        AnalyticNorm,
        initialise_from_statistics,
        propagate_statistics,
    )
    from numpyro_moments.response.linear_response import LinearResponse, linear_response
    from numpyro_moments.response.nested import Nested, nested

__all__ = [
    "SVI",
    "AnalyticNorm",
    "Attribution",
    "BBAlphaELBO",
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

_IMPORTED_ON_REQUEST = {  # what looks at a fit after training, and what needs flax
    "numpyro_moments.criticism.inference_data": "loo predictive_p_values to_inference_data",
    "numpyro_moments.criticism.moment_accuracy": "moment_accuracy",
    "numpyro_moments.criticism.pruning": "pruning_report smaller_network",
    "numpyro_moments.criticism.verdicts": "compare_with_nuts diagnose",
    "numpyro_moments.response.linear_response": "LinearResponse linear_response",
    "numpyro_moments.response.nested": "Nested nested",
    "numpyro_moments.prediction.statistics": (
        "AnalyticNorm initialise_from_statistics propagate_statistics"
    ),
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
