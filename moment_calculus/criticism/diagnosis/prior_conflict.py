"""Check whether the data contradict a prior."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from moment_calculus.criticism.comparison.fitted_model import REFUSALS
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.criticism.diagnosis.inputs import MAX_ENTRIES, DiagnosisInputs

DRAWS, FEWEST = 1000, 100  # numbers of prior draws
BAD, DOUBTFUL = 0.001, 0.01  # significance levels
LEARNT = 0.1  # smallest share by which data are taken to reduce a prior variance


def check_prior_conflict(inputs: DiagnosisInputs) -> Finding:
    """Judge whether posterior means lie where the prior hardly allows them.

    If the model is right, a posterior mean varies about the prior mean with the prior
    variance less the posterior variance, on the unconstrained space. Bonferroni's
    inequality allows for many coordinates. Source: Box 1980; Evans and Moshonov 2006,
    Checking for prior-data conflict.
    """
    distances = _distances(inputs)
    if isinstance(distances, str):
        return Finding(
            "prior", "not known", Verdict.UNKNOWN, f"nothing compares with it: {distances}"
        )
    worst = max(distances, key=lambda site: float(np.max(distances[site])))
    largest, size = float(np.max(distances[worst])), sum(part.size for part in distances.values())
    value = f"means up to {largest:.1f} deviations off"
    if largest < _limit(DOUBTFUL, size):
        return Finding(
            "prior", value, Verdict.GOOD, "the posterior lies where the prior expects it"
        )
    limit = _limit(BAD, size)
    off = [f"'{site}'" for site, part in distances.items() if np.max(part) > _limit(DOUBTFUL, size)]
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


def _distances(inputs: DiagnosisInputs) -> dict[str, np.ndarray] | str:
    """Return |posterior − prior mean| by site, in standard deviations of posterior means."""
    fitted_model = inputs.fitted_model
    count = min(DRAWS, MAX_ENTRIES // max(1, inputs.size))
    if count < FEWEST:
        return f"draws of {inputs.size} coordinates take too much memory"
    with fitted_model.running():
        prior = fitted_model.model.prior(count)
    if isinstance(prior, str):
        return prior
    try:
        posterior = fitted_model.coordinates(fitted_model.sources[-1])
        prior_draws = fitted_model.unconstrained(
            {site: prior.sites[site] for site in fitted_model.latent}
        )
    except REFUSALS as error:
        return str(error)
    return {
        site: _distance(posterior.loc[site], posterior.scale[site], values)
        for site, values in prior_draws.items()
    }


def _distance(loc: np.ndarray, scale: np.ndarray, prior: np.ndarray) -> np.ndarray:
    centre, variance = np.median(prior, axis=0), prior.var(0, ddof=1)
    left = np.maximum(variance - scale**2, LEARNT * variance)
    return np.abs(loc - centre) / np.sqrt(np.where(left > 0, left, np.inf))
