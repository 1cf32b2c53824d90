"""What is better than an approximation, in words."""

from __future__ import annotations

from moment_inference.criticism.diagnosis.inputs import DiagnosisInputs
from moment_inference.criticism.fitted_model import LINEAR_RESPONSE

POINT = "use linear_response, which gives it one without a refit, or DVIGuide"
WITH_COVARIANCES = "a guide with covariances (GaussianGuide, TridiagonalGuide for weights)"
JOINT_GUIDES = "GaussianGuide", "AutoMultivariateNormal"  # which have those of all sites
COORDINATES = "other coordinates (centred where data are many, else not), or NUTS"

UNCONFIRMED = (
    "use linear_response, which corrects them without a refit; that weights of so many coordinates "
    "cannot confirm it says little, compare_with_nuts does"
)


def advise_others(inputs: DiagnosisInputs) -> str:
    """Return advice for posteriors that neither guide nor response holds."""
    if is_joint(inputs):
        return f"no Gaussian of these coordinates holds this posterior: use {COORDINATES}"
    return f"use {WITH_COVARIANCES}, {COORDINATES}"


def advise_weights(source: str) -> str:
    """Return advice on how to weight draws of an approximation."""
    ways = (
        "moments, sample and to_inference_data"
        if source == LINEAR_RESPONSE
        else "to_inference_data"
    )
    return f"weigh draws of {source} by importance_weights=True, an option of {ways}"


def is_joint(inputs: DiagnosisInputs) -> bool:
    """Whether the guide has the covariances of all sites."""
    return inputs.fitted_model.approximation in JOINT_GUIDES
