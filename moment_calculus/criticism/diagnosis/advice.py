"""Recommend a remedy for a bad guide, given what is known of the alternatives."""

from __future__ import annotations

from moment_calculus.criticism.comparison.fitted_model import LINEAR_RESPONSE
from moment_calculus.criticism.diagnosis.inputs import DiagnosisInputs
from moment_calculus.numerics.pareto import ImportanceWeights

MANY_COORDINATES = 50  # coordinates above which k̂ is large for almost any approximation
POINT = "use linear_response, which gives it one without a refit, or DVIGuide"
OTHERS = (
    "use a guide with covariances (AutoMultivariateNormal, TridiagonalGuide for weights), other "
    "coordinates (non-centred hierarchies), or NUTS"
)

UNCONFIRMED = (
    "use linear_response, which corrects them without a refit; that weights of so many coordinates "
    "cannot confirm it says little, compare_with_nuts does"
)


def advise(inputs: DiagnosisInputs, response_is_off: bool) -> str:
    """Return advice on what is better than the guide."""
    if LINEAR_RESPONSE not in inputs.fitted_model.sources:
        return OTHERS
    weights = inputs.weights(LINEAR_RESPONSE)
    if response_is_off:
        return advise_weights(inputs.best_source)
    if isinstance(weights, ImportanceWeights) and not weights.is_reliable:
        if inputs.reliable_weights:
            return advise_weights(inputs.best_source)
        return OTHERS if inputs.size <= MANY_COORDINATES else UNCONFIRMED
    return (
        "use linear_response, which corrects them without a refit, or a guide with covariances "
        "(AutoMultivariateNormal, TridiagonalGuide for weights)"
    )


def advise_weights(source: str) -> str:
    """Return advice on how to weight draws of an approximation."""
    ways = (
        "moments, sample and to_inference_data"
        if source == LINEAR_RESPONSE
        else "to_inference_data"
    )
    return f"weigh draws of {source} by importance_weights=True, an option of {ways}"
