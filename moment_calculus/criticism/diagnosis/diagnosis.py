"""Run all checks of a trained guide, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moment_calculus.criticism.calibration.outcomes import calibration
from moment_calculus.criticism.comparison.subject import REFUSALS, Subject
from moment_calculus.criticism.diagnosis import checks
from moment_calculus.criticism.diagnosis.by_draws import loss_by_draws
from moment_calculus.criticism.diagnosis.conflict import conflict
from moment_calculus.criticism.diagnosis.deviations import scales
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.criticism.diagnosis.findings import Diagnosis, Finding, Verdict
from moment_calculus.hosts.predictions import PredictedSite
from moment_calculus.hosts.predictions.discrete import CountMarginal


def diagnosed(subject: Subject, num_samples: int) -> Diagnosis:
    """Run all checks; predictions are checked on held-out data if there are any."""
    evidence = Evidence(subject, num_samples, checks.STATISTICS)
    title = f"{subject.source} of {evidence.size} coordinates in {subject.host}"
    return Diagnosis(title, tuple(_findings(evidence)))


def _findings(evidence: Evidence) -> Iterator[Finding]:
    subject = evidence.subject
    yield checks.optimum(evidence)
    if subject.by_draws is not None:
        yield loss_by_draws(subject.by_draws)
    for source in subject.sources:
        yield checks.weights(evidence, source)
    for source in subject.sources:
        if found := scales(evidence, source):
            yield found
    if found := checks.narrower(evidence):
        yield found
    yield conflict(evidence)
    for site in subject.observed:
        yield checks.influential(evidence, site)
    yield from _calibrations(evidence)
    yield from checks.replicated(evidence)


def _calibrations(evidence: Evidence) -> Iterator[Finding]:
    subject = evidence.subject
    observed, masked = subject.held_out, subject.masked(held_out=True)
    try:
        predictions = subject.predictions(subject.source)
    except REFUSALS as refusal:
        yield Finding("calibration", "none", Verdict.UNKNOWN, f"nothing is predicted: {refusal}")
        return
    for name, value in observed.items():
        if name in masked:
            yield checks.masked(f"calibration of {name}", masked[name], value.size)
        elif name in predictions:
            found = evidence.mixtures[name] if _is_slow(predictions[name]) else predictions[name]
            yield _calibration(name, found, value, subject.test is None)


def _is_slow(prediction: PredictedSite) -> bool:
    """Return whether each probability of a count takes two nested quadratures."""
    marginal = prediction.marginal
    return isinstance(marginal, CountMarginal) and marginal.random > 1


def _calibration(name: str, prediction: Any, value: Any, in_sample: bool) -> Finding:
    try:
        return checks.calibrated(name, calibration(prediction, value), in_sample)
    except REFUSALS as refusal:
        check = f"calibration of {name}"
        return Finding(check, "not known", Verdict.UNKNOWN, str(refusal))
