"""Run all checks of a trained guide, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moment_calculus.criticism.calibration.calibration import calibration
from moment_calculus.criticism.diagnosis import checks
from moment_calculus.criticism.diagnosis.checks import check_prior_conflict, check_scales
from moment_calculus.criticism.diagnosis.findings import Diagnosis, Finding, Verdict
from moment_calculus.criticism.diagnosis.inputs import DiagnosisInputs
from moment_calculus.criticism.fitted_model import RESPONSE_ERRORS, FittedModel
from moment_calculus.predictions.marginals import CountMarginal
from moment_calculus.predictions.site import PredictedSite


def run_checks(fitted_model: FittedModel, num_samples: int) -> Diagnosis:
    """Run all checks; predictions are checked on held-out data if there are any."""
    inputs = DiagnosisInputs(fitted_model, num_samples)
    title = f"{fitted_model.approximation} of {inputs.size} coordinates in {fitted_model.framework}"
    return Diagnosis(title, tuple(_findings(inputs)))


def _findings(inputs: DiagnosisInputs) -> Iterator[Finding]:
    fitted_model = inputs.fitted_model
    yield checks.check_optimum(inputs)
    if fitted_model.by_draws is not None:
        yield checks.check_loss_by_draws(fitted_model.by_draws)
    for source in fitted_model.approximations:
        yield checks.check_weights(inputs, source)
    for source in fitted_model.approximations:
        if finding := check_scales(inputs, source):
            yield finding
    if finding := checks.check_narrower_variances(inputs):
        yield finding
    yield check_prior_conflict(inputs)
    for site in fitted_model.observed:
        yield checks.check_influence(inputs, site)
    yield from _calibrations(inputs)
    yield from checks.check_replications(inputs)


def _calibrations(inputs: DiagnosisInputs) -> Iterator[Finding]:
    fitted_model = inputs.fitted_model
    observed, masked = fitted_model.held_out, fitted_model.masked(held_out=True)
    try:
        predictions = fitted_model.predictions(fitted_model.approximation)
    except RESPONSE_ERRORS as error:
        yield Finding("calibration", "none", Verdict.UNKNOWN, f"nothing is predicted: {error}")
        return
    for name, value in observed.items():
        if name in masked:
            yield checks.masked_finding(f"calibration of {name}", masked[name], value.size)
        elif name in predictions:
            prediction = inputs.mixtures[name] if _is_slow(predictions[name]) else predictions[name]
            yield _calibration(name, prediction, value, fitted_model.test is None)


def _is_slow(prediction: PredictedSite) -> bool:
    """Return whether each probability of a count takes two nested quadratures."""
    marginal = prediction.marginal
    return isinstance(marginal, CountMarginal) and marginal.random_parameters > 1


def _calibration(name: str, prediction: Any, value: Any, in_sample: bool) -> Finding:
    try:
        return checks.check_calibration(name, calibration(prediction, value), in_sample)
    except RESPONSE_ERRORS as error:
        check = f"calibration of {name}"
        return Finding(check, "not known", Verdict.UNKNOWN, str(error))
