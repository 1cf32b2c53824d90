"""How well calibrated the predictive probabilities of classes are on given observations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.criticism.calibration.coverage import SIGNIFICANT
from moment_calculus.criticism.calibration.observations import (
    check_known,
    checked_values,
    first,
    hosted,
    plain,
)
from moment_calculus.hosts.predictions import PredictedSite, checked_count
from moment_calculus.hosts.predictions.discrete import BinaryMarginal

BINS = 15  # as Guo et al. 2017


class Excess(NamedTuple):
    """By how much the likeliest classes are right more often than predicted.

    Args:
        difference: of accuracy to mean probability; negative of an overconfident prediction.
        standard_error: of it, were the probabilities right.
        p_value: probability of a difference as large, likewise.
    """

    difference: float
    standard_error: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted probabilities in bins of equal width, beside what was observed.

    Args:
        edges: of the bins, [bins + 1]; the upper one belongs to a bin.
        count: how many probabilities are in each, [bins].
        confidence: their mean; NaN in an empty bin.
        accuracy: how often what they are probabilities of was observed; likewise.
        standard_error: of the accuracy, were the probabilities right: √(Σ p(1 − p)) / count.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    standard_error: np.ndarray

    @property
    def calibration_error(self) -> float:
        """Mean of |accuracy − confidence| over the probabilities.

        Positive by chance, for right probabilities too: see :attr:`chance_error`.

        Source: Guo et al. 2017, eq. 3.
        """
        return self._mean(np.abs(self.accuracy - self.confidence))

    @property
    def chance_error(self) -> float:
        """What :attr:`calibration_error` is expected to be if all probabilities are right.

        By the normal approximation of every bin, for bins of many probabilities.
        """
        return self._mean(math.sqrt(2 / math.pi) * self.standard_error)

    @property
    def debiased_error(self) -> float:
        """Root of the mean squared difference, without what chance adds to it.

        Zero where chance explains all of it.

        Source: Kumar, Liang and Ma 2019, definition 5.1, which is Bröcker's 2012.
        """
        accuracy, fewer = self.accuracy, np.maximum(self.count - 1, 1)
        squared = (accuracy - self.confidence) ** 2 - accuracy * (1 - accuracy) / fewer
        return math.sqrt(max(self._mean(squared), 0.0))

    def _mean(self, part: np.ndarray) -> float:
        """Mean over all probabilities of what is known of the bins that are not empty."""
        full = self.count > 0
        return float(np.average(part[full], weights=self.count[full]))

    def __str__(self) -> str:
        """A table of the bins that are not empty."""
        rows = [f"{'probability':>11}  {'mean':>6}  {'observed':>8}  {'± s.e.':>7}  {'count':>6}"]
        for i in np.flatnonzero(self.count):
            rows.append(
                f"{self.edges[i]:>5.2f}–{self.edges[i + 1]:<5.2f}  {self.confidence[i]:>6.3f}  "
                f"{self.accuracy[i]:>8.3f}  {self.standard_error[i]:>7.3f}  {self.count[i]:>6}"
            )
        return "\n".join(rows)


@dataclass(frozen=True, eq=False)
class ClassCalibration:
    """Predictive probabilities of classes beside the classes that were observed.

    Args:
        prediction: of the site.
        probs: [observations, classes]; of a Bernoulli those of zero and one.
        labels: indices of the classes that were observed, [observations].
        log_score: mean log predictive probability of them, of ``prediction.log_prob``: of all
            elements of an event together. Larger is better.
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
        """The share of observations that are of the likeliest class, the first of equals."""
        return float(self._right.mean())

    @property
    def _right(self) -> np.ndarray:
        return self.probs.argmax(-1) == self.labels

    @property
    def brier_score(self) -> float:
        """Mean of Σ (p − 1{y = k})² over the classes k; of a Bernoulli of (p − y)², half of it.

        Smaller is better.

        Source: Brier 1950, eq. 2.
        """
        hit = np.arange(self.probs.shape[-1]) == self.labels[:, None]
        total = float(((self.probs - hit) ** 2).sum(-1).mean())
        return total / 2 if isinstance(self.prediction.marginal, BinaryMarginal) else total

    def reliability(self, bins: int = 10, *, of: int | None = None) -> Reliability:
        """Probabilities in bins of equal width, beside what was observed.

        Args:
            bins: how many.
            of: the class whose probability is meant, of every observation; by default the
                likeliest one of each.

        Raises:
            ValueError: if the number of bins is not positive, or there is no such class.
        """
        if of is None:
            return _reliability(self.confidence, self._right, checked_count(bins, "bins"))
        classes = self.probs.shape[-1]
        if isinstance(of, bool) or of not in range(classes):
            raise ValueError(f"of is a class between 0 and {classes - 1}, not {of!r}")
        return _reliability(self.probs[:, of], self.labels == of, checked_count(bins, "bins"))

    def expected_calibration_error(self, bins: int = BINS, *, classwise: bool = False) -> float:
        """Mean difference between probabilities and frequencies, in bins of equal width.

        It depends on the number of bins, and is positive by chance; ``reliability(bins)`` has
        ``chance_error``, what right probabilities would give, and ``debiased_error``.

        Args:
            bins: how many.
            classwise: the mean over all classes, not of the likeliest one of every observation.

        Source: Guo et al. 2017, eq. 3; Kull et al. 2019, definition 3, for classwise.
        """
        if not classwise:
            return self.reliability(bins).calibration_error
        every = [self.reliability(bins, of=k) for k in range(self.probs.shape[-1])]
        return float(np.mean([part.calibration_error for part in every]))

    def plot_reliability(self, axes: Any = None, *, bins: int = 10, of: int | None = None) -> Any:
        """:func:`moment_calculus.criticism.calibration.pictures.plot_reliability` of this.

        Args:
            axes: as there.
            bins: as there.
            of: as there.
        """
        from moment_calculus.criticism.calibration.pictures import plot_reliability

        return plot_reliability(self, axes, bins=bins, of=of)

    @property
    def excess(self) -> Excess:
        """By how much the likeliest classes are right more often than predicted.

        By the normal approximation of the number of right ones, whose variance is Σ p(1 − p).
        """
        from scipy.special import ndtr

        sure = self.confidence
        error = math.sqrt(float((sure * (1 - sure)).sum())) / len(self.labels)
        excess = self.accuracy - float(sure.mean())
        p_value = 2 * float(ndtr(-abs(excess) / error)) if error else float(excess == 0)
        return Excess(excess, error, p_value)

    @property
    def p_value(self) -> float:
        """Of the :attr:`excess` of right ones."""
        return self.excess.p_value

    def summary(self) -> str:
        """Accuracy and expected calibration error, in a few words."""
        error = self.expected_calibration_error()
        return f"accuracy {self.accuracy:.1%}, calibration error {error:.3f}"

    def verdict(self) -> str:
        """In words, whether the likeliest classes are as likely as predicted."""
        difference, error, p_value = self.excess
        found = (
            f"The likeliest classes have the probability {self.confidence.mean():.3f} on average, "
            f"and are right {100 * self.accuracy:.3g} ± {100 * error:.2g} % of the time"
        )
        if p_value >= SIGNIFICANT:
            return f"{found}: as often as they should, within chance (p = {p_value:.2g})."
        kind = "overconfident" if difference < 0 else "underconfident"
        return f"{found}: the prediction is {kind} (p = {p_value:.2g})."

    def __repr__(self) -> str:
        """Site and size."""
        return f"ClassCalibration({self.prediction.name!r}, observations={len(self.labels)})"

    def __str__(self) -> str:
        """A table of scores and of the reliability, and in words what they say."""
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
                *(f"{name:<18}  {score:>10.4g}" for name, score in scores.items()),
                str(self.reliability()),
                self.verdict(),
            ]
        )


def _reliability(probability: np.ndarray, hit: np.ndarray, bins: int) -> Reliability:
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, probability, side="left") - 1, 0, bins - 1)

    def total(part: np.ndarray) -> np.ndarray:
        return np.bincount(place, weights=part, minlength=bins)

    count = np.bincount(place, minlength=bins)
    size = np.where(count == 0, np.nan, count)
    error = np.sqrt(total(probability * (1 - probability))) / size
    return Reliability(edges, count, total(probability) / size, total(hit) / size, error)


def class_calibration(prediction: PredictedSite, y: Any) -> ClassCalibration:
    """Hold predicted probabilities of classes against the classes that were observed.

    Args:
        prediction: of a Bernoulli, Categorical or OrderedLogistic site.
        y: indices of the classes, of the shape of an observation.

    Raises:
        ValueError: if the shapes differ, an observation is NaN or no class, or a probability NaN.
    """
    probs, binary = plain(prediction.probs), isinstance(prediction.marginal, BinaryMarginal)
    probs = np.asarray(np.stack([1 - probs, probs], -1) if binary else probs, np.float64)
    values = checked_values(prediction, y, probs.shape[:-1])
    wrong = (values != np.floor(values)) | (values < 0) | (values >= probs.shape[-1])
    if wrong.any():
        raise ValueError(
            f"site {prediction.name!r}: {wrong.sum()} of {values.size} observations are no class, "
            f"{first(wrong)}: {values[wrong][0]:g}; classes are indices 0 to {probs.shape[-1] - 1}"
        )
    check_known(prediction, probs.sum(-1))
    given = hosted(values if binary else values.astype(np.int64), prediction.mean)
    log_score = float(plain(prediction.log_prob(given)).astype(np.float64).mean())
    flat = probs.reshape(-1, probs.shape[-1])
    return ClassCalibration(prediction, flat, values.astype(np.int64).ravel(), log_score)
