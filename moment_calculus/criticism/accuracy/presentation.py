"""Show the accuracy of a program as a sentence, a table or a figure."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from moment_calculus.criticism.tables import aligned

LARGE = 0.1  # error from which the text says "breaks" instead of "departs"


def row_label(row: Any) -> str:
    """Return number, label and line of a row as text."""
    line = short(row.line)
    return f"row {row.number} ({row.label}{f', {line}' if line else ''})"


def short(line: str) -> str:
    """Return the user's line without its folders."""
    path, space, module = line.partition(" in ")
    return os.path.basename(path) + space + module


def error(row: Any) -> str:
    """Return the error of a row in words."""
    mean, ratio = row.measures.mean_error, row.measures.deviation_ratio
    by_ratio = f"standard deviation {_digits(ratio)} of the sampled"
    if mean.value - row.measures.noise > abs(math.log(ratio.value)):
        return f"means off by {_digits(mean)} standard deviations, {by_ratio}"
    return by_ratio


def _digits(estimate: Any) -> str:
    return f"{estimate.value:.{3 if estimate.standard_error < 0.004 else 2}f}"


def sentence(rows: Sequence[Any], first: Any, worst: Any, count: int) -> str:
    """Return the result in words; first and worst are rows, first is None if all are accurate."""
    if first is None:
        return f"accurate to Monte Carlo error in all {len(rows)} rows ({count} draws)"
    before = [row for row in rows if row.number < first.number]
    start = f"accurate to Monte Carlo error up to {row_label(before[-1])}; " if before else ""
    verb = "breaks at" if first.measures.departure > LARGE else "departs from the draws at"
    parts = [f"{start}{verb} {row_label(first)}: {error(first)}{_because(rows, first)}"]
    if worst is not first and worst.measures.departure > first.measures.departure:
        parts.append(f"farthest off at {row_label(worst)}: {error(worst)}{_because(rows, worst)}")
    return "; ".join(parts)


def _because(rows: Sequence[Any], row: Any) -> str:
    """Return the reason of a row, or of the last row before it that has one, in brackets."""
    if row.reason:
        return f" ({row.reason})"
    earlier = [other for other in rows if other.number < row.number and other.reason]
    return f" (from row {earlier[-1].number}: {earlier[-1].reason})" if earlier else ""


def _columns(row: Any) -> dict[str, Any]:
    measures = row.measures
    return {
        "label": row.label,
        "operation": row.operation,
        "line": row.line,
        "shape": row.shape,
        "mean_error": measures.mean_error.value,
        "mean_error_se": measures.mean_error.standard_error,
        "noise": measures.noise,
        "deviation_ratio": measures.deviation_ratio.value,
        "deviation_ratio_se": measures.deviation_ratio.standard_error,
        "share": measures.share,
        "worst_mean": measures.worst_mean.value,
        "worst_deviation": measures.worst_deviation.value,
        "correlation_error": _or_nan(measures.correlation_error),
        "certificate": _or_nan(row.certificate),
        "accurate": row.is_accurate,
        "reason": row.reason,
    }


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def frame(rows: Sequence[Any]) -> Any:
    """Return the rows as a ``pandas.DataFrame``."""
    import pandas

    numbers = pandas.Index([row.number for row in rows], name="row")
    return pandas.DataFrame([_columns(row) for row in rows], index=numbers)


HEADINGS = (
    "", "layer", "line", "shape", "ε_μ", "ε_σ", "worst mean", "worst sd", "corr.", "bound", ""
)  # fmt: skip


def text(rows: Sequence[Any]) -> str:
    """Return the rows as a text table; an asterisk marks rows beyond Monte Carlo error."""
    return "\n".join(aligned([HEADINGS, *map(_cells, rows)]))


def _cells(row: Any) -> tuple[str, ...]:
    measures = row.measures
    return (
        str(row.number),
        row.label,
        short(row.line),
        "×".join(map(str, row.shape)) or "1",
        str(measures.mean_error),
        str(measures.deviation_ratio),
        f"{measures.worst_mean.value:+.2f} ± {measures.worst_mean.standard_error:.2f}",
        f"{measures.worst_deviation.value:.2f} ± {measures.worst_deviation.standard_error:.2f}",
        "" if measures.correlation_error is None else f"{measures.correlation_error:.3f}",
        "" if row.certificate is None else f"{row.certificate:.0e}",
        "" if row.is_accurate else "*",
    )


def plot(rows: Sequence[Any], axes: Any = None) -> Any:
    """Plot ε_μ and ε_σ along the program on two axes of Matplotlib; None for new ones."""
    if axes is None:
        from matplotlib import pyplot

        height = 1.5 + 0.25 * len(rows)
        _, axes = pyplot.subplots(1, 2, sharey=True, figsize=(9, height), layout="constrained")
    upper, lower = np.ravel(axes)
    numbers = np.array([row.number for row in rows])
    for axis, name in ((upper, "mean_error"), (lower, "deviation_ratio")):
        estimates = np.array([getattr(row.measures, name) for row in rows])
        axis.errorbar(estimates[:, 0], numbers, xerr=3 * estimates[:, 1], fmt="o-", capsize=3)
    upper.axvline(rows[0].measures.noise, color="grey", linestyle=":")
    lower.axvline(1.0, color="grey", linestyle=":")
    lower.set_xscale("log")
    upper.set_yticks(numbers, [f"{row.label}  {short(row.line)}" for row in rows])
    upper.invert_yaxis()
    upper.set_xlabel("ε_μ (dotted: exact moments)")
    lower.set_xlabel("ε_σ")
    return axes
