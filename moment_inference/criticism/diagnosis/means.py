"""Judge whether means of independent coordinates are right, by one natural step."""

from __future__ import annotations

import math

from moment_inference.criticism.diagnosis.findings import Finding, Verdict
from moment_inference.criticism.diagnosis.inputs import DiagnosisInputs

JOINT = (
    "use GaussianGuide(), which has covariances of all sites and takes this fit as start=, and "
    "linear_response on top"
)


def check_means(inputs: DiagnosisInputs) -> Finding | None:
    """Judge whether the means of a mean-field fit lean on each other; None for other fits."""
    found = inputs.fitted_model.dependence
    if math.isnan(found.left):
        return None
    value = f"{found.left:.2g} nats left"
    if found.is_strong:
        meaning = (
            f"the means of {', '.join(found.sites)} lean on each other: those of independent "
            "coordinates are wrong"
        )
        return Finding("means", value, Verdict.BAD, meaning, JOINT)
    return Finding("means", value, Verdict.GOOD, "covariances between sites hardly move them")


def about_means(inputs: DiagnosisInputs) -> str:
    """Return what bad weights say of the means and standard deviations."""
    found = inputs.fitted_model.dependence
    if math.isnan(found.left):
        return "its tails are wrong, means and standard deviations may be"
    if found.is_strong:
        return "its tails and its means are wrong"
    return "its tails are wrong, standard deviations may be, its means may still be right"
