"""Recommend a remedy for a bad guide, given what is known of the alternatives."""

from __future__ import annotations

from moment_calculus.criticism.comparison.subject import RESPONSE
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.numerics.pareto import Weights

MANY = 50  # coordinates above which k̂ is large for almost any approximation
POINT = "use linear_response, which gives it one without a refit, or DVIGuide"
OTHERS = (
    "use a guide with covariances (AutoMultivariateNormal, TridiagonalGuide for weights), other "
    "coordinates (non-centred hierarchies), or NUTS"
)

UNCONFIRMED = (
    "use linear_response, which corrects them without a refit; that weights of so many coordinates "
    "cannot confirm it says little, compare_with_nuts does"
)


def better(evidence: Evidence, response_is_off: bool) -> str:
    """Return advice on what is better than the guide."""
    if RESPONSE not in evidence.subject.sources:
        return OTHERS
    weights = evidence.weights(RESPONSE)
    if response_is_off:
        return weighted(evidence.best)
    if isinstance(weights, Weights) and not weights.is_reliable:
        if evidence.trusted:
            return weighted(evidence.best)
        return OTHERS if evidence.size <= MANY else UNCONFIRMED
    return (
        "use linear_response, which corrects them without a refit, or a guide with covariances "
        "(AutoMultivariateNormal, TridiagonalGuide for weights)"
    )


def weighted(source: str) -> str:
    """Return advice on how to weight draws of an approximation."""
    ways = "moments, sample and to_inference_data" if source == RESPONSE else "to_inference_data"
    return f"weigh draws of {source} by importance_weights=True, an option of {ways}"
