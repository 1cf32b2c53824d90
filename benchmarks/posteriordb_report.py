"""How far approximations are from reference draws, as a table and as a picture."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from posteriors_models import Draws, Posterior
from timing import impatient

MEAN_FIELD, RESPONSE, NORMAL, MULTIVARIATE, NUTS = METHODS = (
    "mean field",
    "linear response",
    "AutoNormal",
    "AutoMultivariateNormal",
    "NUTS",
)
DRAWS = 40_000  # from an approximation: four times those of the reference
WORDS = 150  # characters of a reason
EXPLANATION = """\
Largest error of a mean, in reference standard deviations · median and range of the ratio of
standard deviations to the reference's (of a positive parameter: of the distance of the 5 % and 95 %
quantiles of its logarithm) · largest error of a correlation · seconds.
"""


@dataclass(frozen=True)
class Accuracy:
    """Of an approximation.

    Args:
        errors: of the means, in reference standard deviations [parameters].
        ratios: of standard deviations to the reference's, or of positive parameters' quantiles'
            distance on the logarithmic scale [parameters].
        positive: which parameters are [parameters].
        correlation: the largest error of one.
    """

    errors: np.ndarray
    ratios: np.ndarray
    positive: np.ndarray
    correlation: float

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.ratios, [0.0, 0.5, 1.0])
        least = f"{low:.2f}" if low >= 0.1 else f"{low:.1g}"
        ratios = f"{middle:.2f} ({least}–{high:.2f})"
        return f"{self.errors.max():.2f} · {ratios} · {self.correlation:.2f}"


@dataclass(frozen=True)
class Attempt:
    """What a method gives (None if nothing), its seconds, and why it gives nothing, or not all."""

    value: Any = None
    seconds: float = 0.0
    reason: str = ""

    def then(self, run: Callable[[Any], Any], patience: float = 0.0) -> Attempt:
        """Go on by a function of the value, which is waited for so many seconds; 0 for ever."""
        if self.value is None:
            return self
        start, value, reason = time.perf_counter(), None, self.reason
        try:
            with impatient(patience):
                value = run(self.value)
        except Exception as error:  # whatever the framework or the library says
            reason = _in_one_line(error)
        return Attempt(value, self.seconds + time.perf_counter() - start, reason)

    def __str__(self) -> str:
        if self.value is None:
            return self.reason
        cell = f"{self.value} · {self.seconds:.1f} s"
        return f"{cell} ({self.reason})" if self.reason else cell


def _in_one_line(error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0]
    line = line if len(line) <= WORDS else f"{line[:WORDS]}…"
    return f"{type(error).__name__}: {line}"


Rows = dict[str, dict[str, Attempt]]


def compared(posterior: Posterior, draws: Draws) -> Accuracy:
    """Draws of a model's sites with the reference."""
    reference = {name: np.asarray(part) for name, part in posterior.reference.items()}
    parameters = posterior.parameters({name: np.asarray(part) for name, part in draws.items()})
    values = np.stack(list(parameters.values()))
    positive = np.array([name.split("[")[0] in posterior.kind.positive for name in parameters])
    errors = np.abs(values.mean(1) - reference["mean"]) / reference["sd"]
    ratios = values.std(1) / reference["sd"]
    low, high = np.quantile(values[positive], [0.05, 0.95], axis=1)
    lowest, highest = (reference[f"quantile_{part}"][positive] for part in ("05", "95"))
    ratios[positive] = np.log(high / low) / np.log(highest / lowest)
    correlation = np.abs(np.corrcoef(values) - reference["correlation"]).max()
    return Accuracy(errors, ratios, positive, float(correlation))


def table(rows: Rows) -> str:
    """In Markdown, a row for each posterior; the reason in the place of what was refused."""
    methods = _methods(rows)
    lines = [["posterior", *methods], ["---"] * (1 + len(methods))]
    lines += [[name, *_cells(results, methods)] for name, results in rows.items()]
    return EXPLANATION + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _methods(rows: Rows) -> list[str]:
    return [method for method in METHODS if any(method in results for results in rows.values())]


def _cells(results: dict[str, Attempt], methods: list[str]) -> list[str]:
    cells = [str(results[method]).replace("|", "\\|") for method in methods]
    return [
        "–" if method == RESPONSE and cell == str(results[MEAN_FIELD]) else cell
        for method, cell in zip(methods, cells, strict=True)
    ]


def picture(rows: Rows, path: Path) -> None:
    """Ratios of standard deviations by method, a dot for each parameter."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    methods = [method for method in _methods(rows) if _ratios(rows, method).size]
    figure, axes = pyplot.subplots(figsize=(8, 0.7 * len(methods) + 1.2), layout="constrained")
    for place, method in enumerate(methods):
        ratios = _ratios(rows, method)
        heights = place + np.random.default_rng(0).uniform(-0.3, 0.3, ratios.size)
        axes.plot(ratios, heights, ".", color="#2171b5", ms=5, alpha=0.5, mew=0)
        middle = 2 * [np.median(ratios)]
        axes.plot(middle, [place - 0.4, place + 0.4], color="#d94801", lw=2)
    axes.axvline(1, color="black", lw=0.8, zorder=0)
    axes.set(xscale="log", yticks=range(len(methods)), yticklabels=methods)
    axes.set_xlabel("standard deviation / that of reference draws (a dot a parameter; the median)")
    axes.invert_yaxis()
    figure.savefig(path, dpi=120)


def _ratios(rows: Rows, method: str) -> np.ndarray:
    """Of all posteriors that a method gave something for."""
    attempts = [attempts[method] for attempts in rows.values() if method in attempts]
    ratios = [attempt.value.ratios for attempt in attempts if attempt.value]
    return np.concatenate([np.zeros(0), *ratios])
