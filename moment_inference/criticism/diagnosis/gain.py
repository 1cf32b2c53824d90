"""Judge what a model predicts beyond the frequencies of classes, or beyond one Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions.marginals import BinaryMarginal, ClassMarginal, CountMarginal
from moment_calculus.predictions.site import PredictedSite
from moment_inference.criticism.diagnosis.findings import Finding, Verdict
from moment_inference.criticism.diagnosis.inputs import DiagnosisInputs

FEWEST = 20  # data for a verdict that a model is bad
CERTAIN = 2.0  # standard errors that a gain should have
CONSTANT = 1e-6  # share by which predictions that are the same for all data may differ
REMEDY = (
    "train longer or from other starts (restarts=), with other inputs, or with normal priors where "
    "those of EmpiricalBayesNormal have collapsed; without a signal take the constant"
)


def check_gain(inputs: DiagnosisInputs, site: str, prediction: PredictedSite) -> Finding | None:
    """Judge the leave-one-out score of a site beside that of a constant prediction.

    None where the model predicts the same for all data, or scores are not to be had.
    """
    result = inputs.leave_one_out(site)
    observed = np.asarray(to_numpy(inputs.fitted_model.observed[site]))
    if isinstance(result, str) or site in inputs.fitted_model.masked(held_out=False):
        return None
    scores = result[1].pointwise
    constant = _constant_scores(observed, prediction)
    if constant is None or scores.shape != constant.shape or _is_constant(prediction):
        return None
    gains = (scores - constant).ravel()
    gain, error = float(gains.sum()), float(gains.std() * gains.size**0.5)
    has_classes = isinstance(prediction.marginal, ClassMarginal | BinaryMarginal)
    reference = "the frequencies of the classes" if has_classes else "one Gaussian for all data"
    check, value = f"gain of {site}", f"{gain:.1f} ± {error:.1f} nats over {reference}"
    if gain > CERTAIN * error:
        return Finding(check, value, Verdict.GOOD, f"the model knows more than {reference}")
    if inputs.reliable_weights is None and result[1].is_bad.any():
        meaning = "by leave-one-out, of draws whose weights cannot be trusted: that says nothing"
        return Finding(check, value, Verdict.UNKNOWN, meaning, "compare_with_nuts")
    verdict = Verdict.BAD if gain <= 0 and gains.size >= FEWEST else Verdict.DOUBTFUL
    how = "no better than" if gain <= 0 else "hardly better than"
    meaning = f"by leave-one-out the model predicts {how} {reference}, whose score is "
    return Finding(check, value, verdict, f"{meaning}{constant.sum():.1f}", REMEDY)


def _is_constant(prediction: PredictedSite) -> bool:
    """Return whether all data have the same prediction."""
    events = int(isinstance(prediction.marginal, ClassMarginal))
    parts = [prediction.mean] if events else [prediction.mean, prediction.variance]
    for part in parts:
        values = np.asarray(to_numpy(part), np.float64)
        values = values.reshape(-1, values.shape[-1] if events else 1)
        if (np.ptp(values, axis=0) > CONSTANT * np.abs(values).max()).any():
            return False
    return True


def _constant_scores(observed: np.ndarray, prediction: PredictedSite) -> np.ndarray | None:
    """Return log scores of a constant, fitted to the data, without what its fit gains.

    Source: Akaike 1974, that a fit gains one nat for each of its parameters.
    """
    marginal: Any = prediction.marginal
    if isinstance(marginal, ClassMarginal | BinaryMarginal):
        classes, indices, counts = np.unique(observed, return_inverse=True, return_counts=True)
        scores = np.log(counts / observed.size)[indices.reshape(observed.shape)]
        return scores - (len(classes) - 1) / observed.size
    if isinstance(marginal, CountMarginal) or observed.size < 3 or not observed.std() > 0:
        return None
    values = observed.astype(np.float64)
    standard = (values - values.mean()) / values.std()
    density = -0.5 * standard**2 - 0.5 * np.log(2 * np.pi) - np.log(values.std())
    return density - 2 / observed.size
