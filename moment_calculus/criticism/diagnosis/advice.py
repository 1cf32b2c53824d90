"""What to do about a guide, by what is known of the alternatives."""

from __future__ import annotations

from moment_calculus.criticism.comparison.subject import RESPONSE
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.numerics.pareto import Weights

POINT = "use linear_response, which gives it one without a refit, or DVIGuide"
OTHERS = (
    "use a guide with covariances (AutoMultivariateNormal, TridiagonalGuide for weights), other "
    "coordinates (non-centred hierarchies), or NUTS"
)


def better(evidence: Evidence, response_is_off: bool) -> str:
    """What is better than the guide.

    Args:
        evidence: of the fit.
        response_is_off: whether standard deviations of linear response are.
    """
    if RESPONSE not in evidence.subject.sources:
        return OTHERS
    weights = evidence.weights(RESPONSE)
    if response_is_off:
        return weighted(evidence.best)
    if isinstance(weights, Weights) and not weights.is_reliable:
        return weighted(evidence.best) if evidence.trusted else OTHERS
    return (
        "use linear_response, which corrects them without a refit, or a guide with covariances "
        "(AutoMultivariateNormal, TridiagonalGuide for weights)"
    )


def weighted(source: str) -> str:
    """How to weigh draws of an approximation.

    Args:
        source: the guide, or linear response.
    """
    ways = "moments, sample and to_inference_data" if source == RESPONSE else "to_inference_data"
    return f"weigh draws of {source} by importance_weights=True, an option of {ways}"
