"""The result of ``moment_accuracy``: moments of each layer compared with those of draws."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_inference.criticism.accuracy.layers import Layer
from moment_inference.criticism.accuracy.measures import (
    GROUPS,
    Draw,
    ErrorMeasures,
    Estimate,
    LayerSums,
    accumulate,
    error_measures,
)
from moment_inference.display import aligned, data_frame, plot_accuracy

LARGE = 0.1  # error from which the text says "breaks" instead of "departs"
HEADINGS = (
    "", "layer", "line", "shape", "ε_μ", "ε_σ", "worst mean", "worst sd", "corr.", "bound", ""
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyRow:
    """The accuracy of one layer. Arrays are of NumPy, in double precision."""

    number: int  # starts at one
    site: str  # the site, or "site.parameter" of its distribution; otherwise empty
    operation: str  # name in the framework
    line: str  # the user's file and line, or empty
    measures: ErrorMeasures
    # Bound on the error of any correlation by the truncation of its series, in standard
    # deviations of both features; None if there is none.
    certificate: float | None
    reason: str  # why the moments may be wrong; empty if no approximation is known
    mean: np.ndarray  # propagated, of the layer's shape
    standard_deviation: np.ndarray
    # Of the features of the first batch elements, [batch, d, d]; None if not propagated.
    covariance: np.ndarray | None
    sampled_mean: np.ndarray  # of the draws
    sampled_standard_deviation: np.ndarray
    sampled_covariance: np.ndarray | None  # [batch, d, d]; None of layers without features
    standard_errors: tuple[np.ndarray, np.ndarray]  # of sampled means and of deviations

    @property
    def label(self) -> str:
        """Return the name of the site, otherwise of the operation."""
        return self.site or self.operation

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the layer's value."""
        return self.mean.shape

    @property
    def is_accurate(self) -> bool:
        """Return whether the moments differ from those of the draws by Monte Carlo error only."""
        return not self.measures.is_beyond_noise

    def __repr__(self) -> str:
        """Return the row in words."""
        return f"<{self.title}: {self.error}>"

    @property
    def short_line(self) -> str:
        """Return the user's line without its folders."""
        path, space, module = self.line.partition(" in ")
        return os.path.basename(path) + space + module

    @property
    def title(self) -> str:
        """Return number, label and line as text."""
        line = f", {self.short_line}" if self.line else ""
        return f"row {self.number} ({self.label}{line})"

    @property
    def error(self) -> str:
        """Return the error in words."""
        mean, ratio = self.measures.mean_error, self.measures.deviation_ratio
        by_ratio = f"standard deviation {_digits(ratio)} of the sampled"
        if mean.value - self.measures.noise > abs(math.log(ratio.value)):
            return f"means off by {_digits(mean)} standard deviations, {by_ratio}"
        return by_ratio

    def columns(self) -> dict[str, Any]:
        """Return what the data frame says of the row."""
        measures = self.measures
        return {
            "label": self.label,
            "operation": self.operation,
            "line": self.line,
            "shape": self.shape,
            "mean_error": measures.mean_error.value,
            "mean_error_se": measures.mean_error.standard_error,
            "noise": measures.noise,
            "deviation_ratio": measures.deviation_ratio.value,
            "deviation_ratio_se": measures.deviation_ratio.standard_error,
            "share": measures.share,
            "worst_mean": measures.worst_mean.value,
            "worst_deviation": measures.worst_deviation.value,
            "correlation_error": _or_nan(measures.correlation_error),
            "certificate": _or_nan(self.certificate),
            "accurate": self.is_accurate,
            "reason": self.reason,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the row of the text table, with an asterisk beyond Monte Carlo error."""
        measures = self.measures
        mean, deviation = measures.worst_mean, measures.worst_deviation
        return (
            str(self.number),
            self.label,
            self.short_line,
            "×".join(map(str, self.shape)) or "1",
            str(measures.mean_error),
            str(measures.deviation_ratio),
            f"{mean.value:+.2f} ± {mean.standard_error:.2f}",
            f"{deviation.value:.2f} ± {deviation.standard_error:.2f}",
            "" if measures.correlation_error is None else f"{measures.correlation_error:.3f}",
            "" if self.certificate is None else f"{self.certificate:.0e}",
            "" if self.is_accurate else "*",
        )


@dataclass(frozen=True, eq=False, repr=False)
class MomentAccuracy:
    """The accuracy of the moments of a model and a guide, layer by layer, against draws.

    Args:
        rows: one for each layer, in the order of the program; sites that are not the
            result of an operation come last.
        num_samples: number of draws.
        left_out: what is random but has no moments of its own, in words.
    """

    rows: tuple[AccuracyRow, ...]
    num_samples: int
    left_out: tuple[str, ...] = ()

    def __getitem__(self, label: str) -> AccuracyRow:
        """Return the last row with a label such as ``"obs.loc"``; raise KeyError without one."""
        matches = [row for row in self.rows if label in (row.site, row.operation)]
        if not matches:
            labels = dict.fromkeys(row.label for row in self.rows)
            raise KeyError(f"no row {label!r}; there are {', '.join(labels)}")
        return matches[-1]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[AccuracyRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    @property
    def worst(self) -> AccuracyRow:
        """The row with the largest error, in its means or in the logarithm of ε_σ."""
        return max(self.rows, key=lambda row: row.measures.departure)

    @property
    def first(self) -> AccuracyRow | None:
        """The first row whose error exceeds Monte Carlo error; None if there is none."""
        return next((row for row in self.rows if not row.is_accurate), None)

    @property
    def sentence(self) -> str:
        """The result in words: up to which layer the moments are exact, and why not beyond it."""
        first, worst, rows = self.first, self.worst, self.rows
        if first is None:
            return (
                f"accurate to Monte Carlo error in all {len(rows)} rows ({self.num_samples} draws)"
            )
        before = [row for row in rows if row.number < first.number]
        start = f"accurate to Monte Carlo error up to {before[-1].title}; " if before else ""
        verb = "breaks at" if first.measures.departure > LARGE else "departs from the draws at"
        parts = [f"{start}{verb} {first.title}: {first.error}{self._because(first)}"]
        if worst is not first and worst.measures.departure > first.measures.departure:
            parts.append(f"farthest off at {worst.title}: {worst.error}{self._because(worst)}")
        return "; ".join(parts)

    def _because(self, row: AccuracyRow) -> str:
        """Return the reason of a row, or of the last row before it, in brackets."""
        if row.reason:
            return f" ({row.reason})"
        earlier = [other for other in self.rows if other.number < row.number and other.reason]
        return f" (from row {earlier[-1].number}: {earlier[-1].reason})" if earlier else ""

    def table(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``, indexed by their numbers.

        Raises:
            ImportError: if pandas is not installed.
        """
        numbers = [row.number for row in self.rows]
        return data_frame([row.columns() for row in self.rows], numbers, "row")

    def plot(self, axes: Any = None) -> Any:
        """Plot ε_μ and ε_σ along the program, with three Monte Carlo standard errors.

        Args:
            axes: two axes of Matplotlib; by default those of a new figure.

        Returns:
            The two axes.

        Raises:
            ImportError: if Matplotlib is not installed.
        """
        measures = [row.measures for row in self.rows]
        return plot_accuracy(
            axes,
            {row.number: f"{row.label}  {row.short_line}" for row in self.rows},
            np.array([each.mean_error for each in measures]),
            np.array([each.deviation_ratio for each in measures]),
            measures[0].noise,
        )

    def __repr__(self) -> str:
        """Return the result in words."""
        return f"<MomentAccuracy: {self.sentence}>"

    def __str__(self) -> str:
        """Return a table, and the result in words."""
        rows = [HEADINGS, *(row.cells() for row in self.rows)]
        return "\n".join([*aligned(rows), "", self.sentence])


def check_draws(num_samples: int) -> None:
    """Raise ValueError if there are too few draws for standard errors."""
    if isinstance(num_samples, bool) or num_samples < 2 * GROUPS:
        raise ValueError(
            f"num_samples={num_samples!r} draws have no standard errors: at least {2 * GROUPS}, or "
            "1000 to see deviations of some per cent"
        )


def other_path(with_moments: str, with_draws: str, line: str) -> UnsupportedMoments:
    """Return the error for other operations with draws than with moments."""
    return UnsupportedMoments(
        f"with moments the program calls {with_moments} where with draws it calls {with_draws}: "
        "layers cannot be compared",
        remedy="let neither the types nor the values of tensors decide what is run",
        operation=with_draws,
        location=line,
    )


def accuracy_of(
    layers: Sequence[Layer],  # in the order of the program, sites last
    left_out: Sequence[str],  # a text for each other random value
    latent: int,  # number of elements of the latent sites, which each draw needs as well
    draw: Any,  # from a number of draws and the indices of layers to arrays [draws, ...]
    num_samples: int,
) -> MomentAccuracy:
    """Compare the layers of a program with draws; raise ValueError without layers."""
    numpy_layers = [layer.in_numpy() for layer in layers]
    finite = [layer for layer in numpy_layers if layer.is_finite]
    if not finite:
        raise ValueError(
            "no operation of the model has a random result with moments: there is nothing to "
            "compare; are the latent sites used by the model?"
        )
    indices = [layer.index for layer in finite]
    draw_finite: Draw = lambda count: draw(count, indices)  # noqa: E731
    sums = accumulate(finite, latent, draw_finite, num_samples)
    infinite = [_infinite(layer, "moments") for layer in numpy_layers if not layer.is_finite]
    infinite += [_infinite(part.layer, "draws") for part in sums if not part.is_finite]
    good = enumerate((part for part in sums if part.is_finite), 1)
    rows = tuple(_row(number, part.layer, part) for number, part in good)
    return MomentAccuracy(rows, num_samples, (*left_out, *infinite))


def _digits(estimate: Estimate) -> str:
    return f"{estimate.value:.{3 if estimate.standard_error < 0.004 else 2}f}"


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _infinite(layer: Layer, what: str) -> str:
    return f"{layer.label} at {layer.line or '?'}: infinite {what}"


def _row(number: int, layer: Layer, sums: LayerSums) -> AccuracyRow:
    deviations = [deviation for _, deviation in sums.leave_one_group_out()]
    of_deviation = np.std(deviations, axis=0) * math.sqrt(len(deviations) - 1)
    errors = sums.deviation / math.sqrt(sums.count), of_deviation
    return AccuracyRow(
        number,
        layer.site,
        layer.operation,
        layer.line,
        error_measures(layer, sums, errors),
        None if layer.arrays[3] is None else float(layer.arrays[3]),
        layer.reason,
        layer.mean,
        layer.deviation,
        layer.covariance,
        sums.mean,
        sums.deviation,
        sums.covariance,
        errors,
    )
