"""Check whether the data contradict a prior."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from moment_calculus.criticism.comparison.subject import REFUSALS
from moment_calculus.criticism.diagnosis.evidence import NUMBERS, Evidence
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict

DRAWS, FEWEST = 1000, 100  # numbers of prior draws
BAD, DOUBTFUL = 0.001, 0.01  # significance levels
LEARNT = 0.1  # smallest share by which data are taken to reduce a prior variance


def conflict(evidence: Evidence) -> Finding:
    """Judge whether posterior means lie where the prior hardly allows them.

    If the model is right, a posterior mean varies about the prior mean with the prior variance less
    the posterior variance, on the unconstrained space. Bonferroni's inequality allows for many
    coordinates. Source: Box 1980; Evans and Moshonov 2006, Checking for prior-data conflict.
    """
    found = _distances(evidence)
    if isinstance(found, str):
        return Finding("prior", "not known", Verdict.UNKNOWN, f"nothing compares with it: {found}")
    worst = max(found, key=lambda site: float(np.max(found[site])))
    largest, size = float(np.max(found[worst])), sum(part.size for part in found.values())
    value = f"means up to {largest:.1f} deviations off"
    if largest < _limit(DOUBTFUL, size):
        return Finding(
            "prior", value, Verdict.GOOD, "the posterior lies where the prior expects it"
        )
    limit = _limit(BAD, size)
    off = [f"'{site}'" for site, part in found.items() if np.max(part) > _limit(DOUBTFUL, size)]
    return Finding(
        "prior",
        value,
        Verdict.BAD if largest > limit else Verdict.DOUBTFUL,
        f"prior and data contradict each other at {', '.join(off)}, the most at '{worst}': there "
        f"the posterior mean is {largest:.1f} standard deviations from where the prior expects it",
        "look at prior draws (to_inference_data); a prior that is wider or elsewhere, or units of "
        "the data that suit it",
    )


def _limit(chance: float, size: int) -> float:
    return float(-ndtri(chance / 2 / size))


def _distances(evidence: Evidence) -> dict[str, np.ndarray] | str:
    """Return |posterior − prior mean| by site, in standard deviations of posterior means."""
    subject = evidence.subject
    count = min(DRAWS, NUMBERS // max(1, evidence.size))
    if count < FEWEST:
        return f"draws of {evidence.size} coordinates take too much memory"
    with subject.running():
        prior = subject.program.prior(count)
    if isinstance(prior, str):
        return prior
    try:
        here = subject.coordinates(subject.sources[-1])
        there = subject.unconstrained({site: prior.sites[site] for site in subject.latent})
    except REFUSALS as refusal:
        return str(refusal)
    return {
        site: _distance(here.loc[site], here.scale[site], values) for site, values in there.items()
    }


def _distance(loc: np.ndarray, scale: np.ndarray, prior: np.ndarray) -> np.ndarray:
    centre, variance = np.median(prior, axis=0), prior.var(0, ddof=1)
    left = np.maximum(variance - scale**2, LEARNT * variance)
    return np.abs(loc - centre) / np.sqrt(np.where(left > 0, left, np.inf))
