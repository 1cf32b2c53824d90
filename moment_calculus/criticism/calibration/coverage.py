"""Count observations inside predictive intervals, and test whether the counts are as predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SIGNIFICANT = 0.05  # significance level of the verdicts


@dataclass(frozen=True, eq=False)
class Coverage:
    """Shares of observations inside their central predictive intervals, [masses] each."""

    mass: np.ndarray  # nominal probability of the intervals
    expected: np.ndarray  # mean predictive probability inside: the mass, more for counts
    observed: np.ndarray  # share of the observations inside
    standard_error: np.ndarray  # of the share, √(c(1 − c)/n), for independent observations
    p_value: np.ndarray  # exact binomial test of the share; conservative for counts

    def __str__(self) -> str:
        """Return a table."""
        rows = [f"{'interval':>8}  {'expected':>8}  {'inside':>8}  {'± s.e.':>7}  {'p':>7}"]
        for row in zip(*vars(self).values(), strict=True):
            mass, expected, observed, error, p_value = map(float, row)
            rows.append(
                f"{mass:>8.4g}  {expected:>8.3f}  {observed:>8.3f}  {error:>7.3f}  {p_value:>7.2g}"
            )
        return "\n".join(rows)

    def verdict(self) -> str:
        """Return in words what the widest requested interval says about the prediction."""
        last = int(np.argmax(self.mass))
        mass, expected, observed = (
            100 * float(part[last]) for part in (self.mass, self.expected, self.observed)
        )
        error, p_value = 100 * float(self.standard_error[last]), float(self.p_value[last])
        sentence = f"{mass:.4g} % intervals hold {observed:.3g} ± {error:.2g} % of the observations"
        if abs(expected - mass) > 0.05:
            sentence += f", and {expected:.3g} % of the predictive probability"
        if p_value >= SIGNIFICANT:
            return f"{sentence}: as many as they should, within chance (p = {p_value:.2g})"
        wrong = "narrow" if observed < expected else "wide"
        return f"{sentence}: the predictive distribution is too {wrong} (p = {p_value:.2g})"


def coverage_of(
    masses: Sequence[float], expected: Sequence[float], inside: Sequence[np.ndarray]
) -> Coverage:
    """Return the coverage, given for each interval which observations are inside."""
    from scipy.stats import binomtest  # slow to import

    hits, count = [int(part.sum()) for part in inside], inside[0].size
    share = np.asarray(hits) / count
    likely = [
        binomtest(hit, count, min(float(p), 1.0)).pvalue
        for hit, p in zip(hits, expected, strict=True)
    ]
    return Coverage(
        np.asarray(masses, np.float64),
        np.asarray(expected, np.float64),
        share,
        np.sqrt(share * (1 - share) / count),
        np.asarray(likely),
    )


def checked_masses(masses: float | Sequence[float]) -> list[float]:
    """Return interval masses as a list; raise ValueError if one is not between 0 and 1."""
    result = np.atleast_1d(np.asarray(masses, np.float64))
    if result.ndim > 1 or not result.size or not ((result > 0) & (result < 1)).all():
        raise ValueError(f"masses of intervals are numbers between 0 and 1, not {masses!r}")
    return [float(mass) for mass in result]
