"""Whether the data contradict a prior."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from moment_calculus.criticism.comparison.subject import REFUSALS
from moment_calculus.criticism.diagnosis.evidence import NUMBERS, Evidence
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict

DRAWS, FEWEST = 1000, 100  # of the prior
BAD, DOUBTFUL = 0.001, 0.01  # chances of a conflict where there is none
LEARNT = 0.1  # share of a prior variance that the data take away, at least


def conflict(evidence: Evidence) -> Finding:
    """Whether posterior means lie where the prior hardly lets them.

    Under the model a posterior mean varies about the prior's with the prior variance less the
    posterior's. Coordinates are those of the unconstrained space; that they are many is allowed
    for by Bonferroni's inequality.

    Args:
        evidence: of the fit.

    Source: Box 1980; Evans and Moshonov 2006, Checking for prior-data conflict.
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
    """Of posterior means from the prior's, in standard deviations of the former, by site."""
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
