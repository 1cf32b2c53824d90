"""Assess how well predictive probabilities of classes are calibrated on observations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions.marginals import BinaryMarginal
from moment_calculus.predictions.site import PredictedSite, checked_count
from moment_inference.criticism.calibration.coverage import (
    SIGNIFICANT,
    check_known,
    checked_values,
    first,
    to_framework,
)
from moment_inference.display import numeric_table, plot_reliability, scores_table

BINS = 15  # Guo et al. 2017


class Excess(NamedTuple):
    """Difference between accuracy and predicted probability of the likeliest classes."""

    difference: float  # accuracy minus mean probability; negative if overconfident
    standard_error: float  # of the difference, for right probabilities
    p_value: float  # of the difference, for right probabilities


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted probabilities and observed frequencies in bins of equal width."""

    edges: np.ndarray  # [bins + 1]; each bin includes its upper edge
    count: np.ndarray  # number of probabilities in each bin, [bins]
    confidence: np.ndarray  # mean probability of each bin; NaN if it is empty
    accuracy: np.ndarray  # observed frequency of each bin; NaN if it is empty
    standard_error: np.ndarray  # of accuracy for right probabilities: √(Σ p(1 − p)) / count

    @property
    def calibration_error(self) -> float:
        """Return the mean of |accuracy − confidence| over the probabilities.

        It is positive by chance for right probabilities too: see :attr:`chance_error`.
        Source: Guo et al. 2017, eq. 3.
        """
        return self._mean(np.abs(self.accuracy - self.confidence))

    @property
    def chance_error(self) -> float:
        """Return the ``calibration_error`` that right probabilities have on average."""
        # E|X| = √(2/π) s for a normal X; bins of many probabilities are approximately
        # normal.
        return self._mean(math.sqrt(2 / math.pi) * self.standard_error)

    @property
    def debiased_error(self) -> float:
        """Return the root mean squared difference without the part that chance explains.

        Source: Kumar, Liang and Ma 2019, definition 5.1, which is Bröcker's 2012.
        """
        accuracy, fewer = self.accuracy, np.maximum(self.count - 1, 1)
        squared = (accuracy - self.confidence) ** 2 - accuracy * (1 - accuracy) / fewer
        return math.sqrt(max(self._mean(squared), 0.0))

    def _mean(self, quantity: np.ndarray) -> float:
        """Return the mean over all probabilities of a quantity of the bins."""
        full = self.count > 0
        return float(np.average(quantity[full], weights=self.count[full]))

    def __str__(self) -> str:
        """Return a table of the bins that are not empty."""
        names = ("probability", "mean", "observed", "± s.e.", "count")
        formats = zip(names, (">11", ">6.3f", ">8.3f", ">7.3f", ">6"), strict=True)
        bins = [f"{low:>5.2f}–{high:<5.2f}" for low, high in pairwise(self.edges)]
        columns = (self.confidence, self.accuracy, self.standard_error, self.count)
        rows = zip(bins, *columns, strict=True)
        return numeric_table(dict(formats), [row for row in rows if row[-1]])


@dataclass(frozen=True, eq=False)
class ClassCalibration:
    """Predictive probabilities of classes compared with the observed classes.

    Args:
        prediction: prediction of the site.
        probs: predicted probabilities, [observations, classes]; for a Bernoulli of zero
            and one.
        labels: indices of the observed classes, [observations].
        log_score: mean of ``prediction.log_prob`` at the observed classes, where all
            elements of an event count together. Larger is better.
    """

    prediction: PredictedSite
    probs: np.ndarray
    labels: np.ndarray
    log_score: float

    @property
    def confidence(self) -> np.ndarray:
        """Probability of the likeliest class of every observation, [observations]."""
        return self.probs.max(-1)

    @property
    def accuracy(self) -> float:
        """Share of observations in their likeliest class; of equal classes the first counts."""
        return float(self._right.mean())

    @property
    def _right(self) -> np.ndarray:
        return self.probs.argmax(-1) == self.labels

    @property
    def brier_score(self) -> float:
        """Mean of Σ (p − 1{y = k})² over the classes k; for a Bernoulli half of it, (p − y)².

        Smaller is better.

        Source: Brier 1950, eq. 2.
        """
        hit = np.arange(self.probs.shape[-1]) == self.labels[:, None]
        total = float(((self.probs - hit) ** 2).sum(-1).mean())
        return total / 2 if isinstance(self.prediction.marginal, BinaryMarginal) else total

    def reliability(self, bins: int = 10, *, of: int | None = None) -> Reliability:
        """Compare predicted probabilities with observed frequencies in bins of equal width.

        Args:
            bins: number of bins.
            of: the class whose probability is taken for every observation; by default the
                likeliest class of each observation.

        Raises:
            ValueError: if the number of bins is not positive, or the class does not
                exist.
        """
        if of is None:
            return _reliability(self.confidence, self._right, checked_count(bins, "bins"))
        classes = self.probs.shape[-1]
        if isinstance(of, bool) or of not in range(classes):
            raise ValueError(f"of is a class between 0 and {classes - 1}, not {of!r}")
        return _reliability(self.probs[:, of], self.labels == of, checked_count(bins, "bins"))

    def expected_calibration_error(self, bins: int = BINS, *, classwise: bool = False) -> float:
        """Mean difference between probabilities and frequencies, in bins of equal width.

        It depends on the number of bins and is positive by chance. ``reliability(bins)``
        has ``chance_error``, the value for right probabilities, and ``debiased_error``.

        Args:
            bins: number of bins.
            classwise: take the mean over all classes, not the likeliest class of every
                observation.

        Source: Guo et al. 2017, eq. 3; Kull et al. 2019, definition 3, for classwise.
        """
        if not classwise:
            return self.reliability(bins).calibration_error
        every = [self.reliability(bins, of=k) for k in range(self.probs.shape[-1])]
        return float(np.mean([part.calibration_error for part in every]))

    def plot_reliability(self, axes: Any = None, *, bins: int = 10, of: int | None = None) -> Any:
        """Plot the reliability diagram: observed frequencies against predicted probabilities.

        Below the diagonal predictions are overconfident. The bars around the diagonal are
        two standard errors of right probabilities.

        Args:
            axes: axes of matplotlib; by default new ones.
            bins: number of bins of equal width.
            of: the class whose probability is taken; by default the likeliest of each
                observation.

        Returns:
            The axes.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if the number of bins is not positive, or the class does not
                exist.
        """
        reliability = self.reliability(bins, of=of)
        return plot_reliability(axes, self.prediction.name, **vars(reliability), of=of)

    @property
    def excess(self) -> Excess:
        """Difference between accuracy and predicted probability of the likeliest classes.

        Its test uses the normal approximation of the number of hits, whose variance is Σ
        p(1 − p).
        """
        from scipy.special import ndtr

        sure = self.confidence
        error = math.sqrt(float((sure * (1 - sure)).sum())) / len(self.labels)
        excess = self.accuracy - float(sure.mean())
        p_value = 2 * float(ndtr(-abs(excess) / error)) if error else float(excess == 0)
        return Excess(excess, error, p_value)

    @property
    def p_value(self) -> float:
        """P-value of the :attr:`excess`."""
        return self.excess.p_value

    def summary(self) -> str:
        """Return accuracy and expected calibration error as a short text."""
        error = self.expected_calibration_error()
        return f"accuracy {self.accuracy:.1%}, calibration error {error:.3f}"

    def verdict(self) -> str:
        """Return in words whether the likeliest classes are right as often as predicted."""
        difference, error, p_value = self.excess
        sentence = (
            f"The likeliest classes have the probability {self.confidence.mean():.3f} on average, "
            f"and are right {100 * self.accuracy:.3g} ± {100 * error:.2g} % of the time"
        )
        if p_value >= SIGNIFICANT:
            return f"{sentence}: as often as they should, within chance (p = {p_value:.2g})."
        kind = "overconfident" if difference < 0 else "underconfident"
        return f"{sentence}: the prediction is {kind} (p = {p_value:.2g})."

    def __repr__(self) -> str:
        """Return name of the site and number of observations."""
        return f"ClassCalibration({self.prediction.name!r}, observations={len(self.labels)})"

    def __str__(self) -> str:
        """Return a table of scores and of the reliability, and the verdict."""
        bins = self.reliability(BINS)
        scores = {
            "accuracy": self.accuracy,
            "log score": self.log_score,
            "Brier score": self.brier_score,
            "calibration error": bins.calibration_error,
            "… by chance": bins.chance_error,
        }
        heading = f"site {self.prediction.name!r}, {self.prediction.marginal.family}, "
        return "\n".join(
            [
                heading + f"{len(self.labels)} observations, {self.probs.shape[-1]} classes",
                scores_table(scores),
                str(self.reliability()),
                self.verdict(),
            ]
        )


def _reliability(probability: np.ndarray, hit: np.ndarray, bins: int) -> Reliability:
    edges = np.linspace(0, 1, bins + 1)
    index = np.clip(np.searchsorted(edges, probability, side="left") - 1, 0, bins - 1)

    def total(quantity: np.ndarray) -> np.ndarray:
        return np.bincount(index, weights=quantity, minlength=bins)

    count = np.bincount(index, minlength=bins)
    size = np.where(count == 0, np.nan, count)
    error = np.sqrt(total(probability * (1 - probability))) / size
    return Reliability(edges, count, total(probability) / size, total(hit) / size, error)


def class_calibration(prediction: PredictedSite, y: Any) -> ClassCalibration:
    """Compare predicted probabilities of classes with observed class indices ``y``."""
    probs, binary = to_numpy(prediction.probs), isinstance(prediction.marginal, BinaryMarginal)
    probs = np.asarray(np.stack([1 - probs, probs], -1) if binary else probs, np.float64)
    values = checked_values(prediction, y, probs.shape[:-1])
    wrong = (values != np.floor(values)) | (values < 0) | (values >= probs.shape[-1])
    if wrong.any():
        raise ValueError(
            f"site {prediction.name!r}: {wrong.sum()} of {values.size} observations are no class, "
            f"{first(wrong)}: {values[wrong][0]:g}; classes are indices 0 to {probs.shape[-1] - 1}"
        )
    check_known(prediction, probs.sum(-1))
    given = to_framework(values if binary else values.astype(np.int64), prediction.mean)
    log_score = float(to_numpy(prediction.log_prob(given), np.float64).mean())
    flat = probs.reshape(-1, probs.shape[-1])
    return ClassCalibration(prediction, flat, values.astype(np.int64).ravel(), log_score)
