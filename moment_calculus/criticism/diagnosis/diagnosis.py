"""All checks of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moment_calculus.criticism.calibration.outcomes import calibration
from moment_calculus.criticism.comparison.subject import REFUSALS, Subject
from moment_calculus.criticism.diagnosis import checks
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.criticism.diagnosis.findings import Diagnosis, Finding, Verdict


def diagnosed(subject: Subject, num_samples: int) -> Diagnosis:
    """Look at a fit from all sides.

    Args:
        subject: the fit; its arguments for predictions are held-out data, or the data.
        num_samples: draws that importance weights are of.
    """
    evidence = Evidence(subject, num_samples, checks.STATISTICS)
    title = f"{subject.source} of {evidence.size} coordinates in {subject.host}"
    return Diagnosis(title, tuple(_findings(evidence)))


def _findings(evidence: Evidence) -> Iterator[Finding]:
    subject = evidence.subject
    yield checks.optimum(evidence)
    for source in subject.sources:
        yield checks.weights(evidence, source)
    yield checks.scales(evidence)
    if found := checks.narrower(evidence):
        yield found
    for site in subject.observed:
        yield checks.influential(evidence, site)
    yield from _calibrations(subject)
    yield from checks.replicated(evidence)


def _calibrations(subject: Subject) -> Iterator[Finding]:
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
            yield _calibration(name, predictions[name], value, subject.test is None)


def _calibration(name: str, prediction: Any, value: Any, in_sample: bool) -> Finding:
    try:
        return checks.calibrated(name, calibration(prediction, value), in_sample)
    except REFUSALS as refusal:
        check = f"calibration of {name}"
        return Finding(check, "not known", Verdict.UNKNOWN, str(refusal))
