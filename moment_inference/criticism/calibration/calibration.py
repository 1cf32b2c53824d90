"""Assess how well predictions are calibrated on observations: coverage, PIT and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions.marginals import (
    BinaryMarginal,
    ClassMarginal,
    CountMarginal,
    Marginal,
    NormalMarginal,
)
from moment_calculus.predictions.site import PredictedSite
from moment_inference.criticism.calibration.classes import ClassCalibration, class_calibration
from moment_inference.criticism.calibration.coverage import (
    SIGNIFICANT,
    Coverage,
    check_known,
    check_support,
    checked_masses,
    checked_prediction,
    checked_values,
    coverage_of,
    to_framework,
)
from moment_inference.display import INTERVALS, plot_coverage, plot_pit, scores_table

DEFAULT_MASSES = (0.5, 0.8, 0.9, 0.95)


class Uniformity(NamedTuple):
    """The Kolmogorov–Smirnov test of the probability integral transform (PIT)."""

    statistic: float  # largest distance from the uniform distribution function
    p_value: float  # if observations are independent given predictions


class Sharpness(NamedTuple):
    """How concentrated predictions are, whatever was observed."""

    width: float  # mean width of the central predictive interval
    standard_deviation: float  # mean over the predictions; infinite if a variance is


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions of continuous quantities or counts compared with observations.

    Every element of a vector or an event counts on its own. Tests and standard errors
    assume that observations are independent given their predictions. Since one posterior
    of the weights predicts all of them, errors are larger on few rows far from the
    training data. On training rows predictions look better calibrated than on others.

    Args:
        prediction: prediction of the site.
        observed: observations, of the shape of the predictions.
        below: P(Y < y) of every observation under its prediction, of the same shape.
        up_to: P(Y ≤ y), of the same shape; equal to ``below`` for continuous quantities.
        log_score: mean of ``prediction.log_prob`` at the observations, where all elements
            of an event count together. Larger is better.
        seed: seed of the randomised transform of counts.

    Source: Gneiting, Balabdaoui and Raftery 2007: sharpness subject to calibration.
    """

    prediction: PredictedSite
    observed: np.ndarray
    below: np.ndarray
    up_to: np.ndarray
    log_score: float
    seed: int

    @property
    def is_discrete(self) -> bool:
        """Whether the prediction is of counts."""
        return isinstance(self.prediction.marginal, CountMarginal)

    @cached_property
    def pit(self) -> np.ndarray:
        """Return the PIT of every observation, which is uniform if the prediction is right.

        P(Y ≤ y); for counts a uniform draw between P(Y < y) and P(Y ≤ y).
        Source: Dawid 1984; Czado, Gneiting and Held 2009, eq. 1.
        """
        share = np.random.default_rng(self.seed).uniform(size=self.below.shape)
        return self.below + share * (self.up_to - self.below)

    @cached_property
    def uniformity(self) -> Uniformity:
        """Return the Kolmogorov–Smirnov test that :attr:`pit` is uniform."""
        from scipy.stats import kstest  # slow to import

        test = kstest(self.pit.ravel(), "uniform")
        return Uniformity(float(test.statistic), float(test.pvalue))

    def coverage(self, masses: float | Sequence[float] = DEFAULT_MASSES) -> Coverage:
        """Return the shares of observations inside central predictive intervals.

        Args:
            masses: nominal probabilities of the intervals, between 0 and 1. Intervals of
                counts have at least these; ``expected`` of the result has the actual
                probabilities.

        Raises:
            ValueError: if a mass is not between 0 and 1.
        """
        wanted = checked_masses(masses)
        if not self.is_discrete:
            return coverage_of(wanted, wanted, [np.abs(self.up_to - 0.5) <= m / 2 for m in wanted])
        ends = [((1 - mass) / 2, (1 + mass) / 2) for mass in wanted]
        # An end is the smallest count whose probability reaches a level.
        inside = [(self.up_to >= low) & (self.below < high) for low, high in ends]
        counts = to_numpy(self.prediction.quantile([level for pair in ends for level in pair]))
        lower = np.arange(len(counts)) % 2 == 0
        counts = counts - lower.reshape((-1,) + (1,) * (counts.ndim - 1))
        up_to = to_numpy(self.prediction.cdf(to_framework(counts, self.prediction.mean)))
        within = (up_to[1::2] - up_to[::2]).reshape(len(wanted), -1).mean(1)
        return coverage_of(wanted, within.tolist(), inside)

    def sharpness(self, mass: float = 0.9) -> Sharpness:
        """Return the mean width of central predictive intervals and the mean standard deviation.

        Args:
            mass: probability of the intervals, between 0 and 1.

        Raises:
            ValueError: if the mass is not between 0 and 1.
        """
        lower, upper = (to_numpy(end, np.float64) for end in self.prediction.interval(mass))
        variance = to_numpy(self.prediction.variance, np.float64)
        return Sharpness(float((upper - lower).mean()), float(np.sqrt(variance).mean()))

    @property
    def rmse(self) -> float:
        """Root mean squared error of the predictive mean; NaN if there is no mean."""
        error = self.observed - to_numpy(self.prediction.mean)
        return float(np.sqrt((error**2).mean()))

    @property
    def crps(self) -> float:
        """Mean continuous ranked probability score, in the units of the observations.

        Smaller is better; for a prediction without spread it is the absolute error.

        Raises:
            UnsupportedMoments: if the predictive distribution is not Normal.

        Source: Gneiting and Raftery 2007, eq. 21: the closed form for Normals.
        """
        marginal = self.prediction.marginal
        if not isinstance(marginal, NormalMarginal):
            raise UnsupportedMoments(
                f"site {self.prediction.name!r}: no continuous ranked probability score in closed "
                f"form of this {marginal.family}: its predictive distribution is not Normal",
                remedy="compare predictions by log_score",
            )
        mean, variance = to_numpy(self.prediction.mean), to_numpy(self.prediction.variance)
        return float(normal_crps(self.observed, mean, variance).mean())

    def plot_pit(self, axes: Any = None, *, bins: int | None = None) -> Any:
        """Plot a histogram of the probability integral transform with the band of a uniform one.

        A hill says that predictions are too wide, a valley that they are too narrow, a
        slope that they are too low (rising) or too high (falling). Counts have the
        non-randomised histogram, whose bars vary less than the band, which holds for
        continuous quantities.

        Args:
            axes: axes of matplotlib; by default new ones.
            bins: number of bins; by default one for every twenty observations, from five
                to twenty.

        Returns:
            The axes.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if the number of bins is not positive.

        Source: Czado, Gneiting and Held 2009, eq. 2 and 3.
        """
        name, discrete = self.prediction.name, self.is_discrete
        return plot_pit(axes, name, self.below, self.up_to, bins, discrete)

    def plot_coverage(self, axes: Any = None) -> Any:
        """Plot shares of observations inside central intervals against predicted probabilities.

        Below the diagonal intervals are too narrow, above it too wide; the band is what
        chance allows.

        Args:
            axes: axes of matplotlib; by default new ones.

        Returns:
            The axes.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        coverage = self.coverage(INTERVALS.tolist())
        shares = coverage.expected, coverage.observed
        return plot_coverage(axes, self.prediction.name, self.observed.size, *shares)

    @cached_property
    def _coverage_of_90(self) -> Coverage:
        return self.coverage(0.9)

    @property
    def p_value(self) -> float:
        """P-value of the coverage of 90 % intervals and the uniformity of the PIT together."""
        coverage = float(self._coverage_of_90.p_value[0])
        return min(1.0, 2 * min(coverage, self.uniformity.p_value))  # Bonferroni: two tests

    def summary(self) -> str:
        """Return the coverage of the 90 % intervals as a short text."""
        return f"{float(self._coverage_of_90.observed[0]):.1%} inside 90 %"

    def verdict(self) -> str:
        """Return in words what coverage and PIT say about the predictions."""
        statistic, p_value = self.uniformity
        uniform = "not uniform" if p_value < SIGNIFICANT else "uniform, within chance"
        return (
            f"{self._coverage_of_90.verdict()}.\n"
            f"The PIT is {uniform} (Kolmogorov–Smirnov {statistic:.3f}, p = {p_value:.2g})."
        )

    def __repr__(self) -> str:
        """Return name of the site and number of observations."""
        return f"Calibration({self.prediction.name!r}, observations={self.observed.size})"

    def __str__(self) -> str:
        """Return a table of scores and coverage, and the verdict."""
        sharp = self.sharpness()
        heading = f"site {self.prediction.name!r}, {self.prediction.marginal.family}, "
        scores = {"log score": self.log_score, "RMSE": self.rmse}
        if isinstance(self.prediction.marginal, NormalMarginal):
            scores["CRPS"] = self.crps
        scores |= {"standard deviation": sharp.standard_deviation, "90 % width": sharp.width}
        return "\n".join(
            [
                heading + f"{self.observed.size} observations",
                scores_table(scores),
                str(self.coverage()),
                self.verdict(),
            ]
        )


def normal_crps(value: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the CRPS of Normals (Gneiting and Raftery 2007)."""
    from scipy.special import ndtr

    scale = np.sqrt(np.asarray(variance, np.float64))
    error = value - mean
    z = error / np.where(scale == 0, 1.0, scale)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    score = scale * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    return np.where(scale == 0, np.abs(error), score)


def calibration(prediction: Any, y: Any, *, seed: int = 0) -> Calibration | ClassCalibration:
    """Compare the prediction of a site with observations.

    Args:
        prediction: prediction of one site, ``predict(…)[name]``, by moments or by
            particles.
        y: observations of the prediction's shape, or indices of classes; an array of any
            framework. Rows that were not trained on are the most informative.
        seed: seed of the randomised probability integral transform of counts.

    Returns:
        A :class:`Calibration` of continuous quantities and of counts; a
        :class:`ClassCalibration` of Bernoulli, Categorical and OrderedLogistic sites.

    Raises:
        TypeError: if ``prediction`` is not the prediction of a site.
        ValueError: if the shapes differ, an observation is NaN or outside the support, or
            a prediction is NaN.
        UnsupportedMoments: if the predictive distribution function is not known.
    """
    site = checked_prediction(prediction)
    return _calibrated(site.marginal, site, y, seed)


@singledispatch
def _calibrated(marginal: Marginal, prediction: PredictedSite, y: Any, seed: int) -> Any:
    values = checked_values(prediction, y, tuple(prediction.mean.shape))
    whole = isinstance(marginal, CountMarginal)
    check_support(prediction, values, whole=whole)
    given = to_framework(values, prediction.mean)
    up_to = to_numpy(prediction.cdf(given), np.float64)
    check_known(prediction, up_to)
    below = to_numpy(prediction.cdf(given - 1), np.float64) if whole else up_to
    log_score = float(to_numpy(prediction.log_prob(given), np.float64).mean())
    return Calibration(prediction, values, below, up_to, log_score, seed)


@_calibrated.register(BinaryMarginal)
@_calibrated.register(ClassMarginal)
def _(marginal: Marginal, prediction: PredictedSite, y: Any, seed: int) -> ClassCalibration:
    return class_calibration(prediction, y)
