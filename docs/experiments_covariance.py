"""The tables of diagonal, backward and full covariance beside each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from how_fast import table

Reader = Callable[[str], dict[str, Any]]
COVARIANCES = ("diagonal", "backward", "full")
COMPILED = ", compiled"
SCORE, DRAWN = "test_log_likelihood", "by_draws"


def rows_of(read: Reader, name: str) -> list[dict[str, Any]]:
    """The rows of a file of results."""
    return read(f"backward/{name}")["rows"]


def costs(read: Reader) -> str:
    """Time and memory of a step by width and depth."""
    lines = []
    for row, other in zip(rows_of(read, "time_numpyro"), rows_of(read, "time_pyro"), strict=True):
        pyro = other["ratios"]
        ratios = row["ratios"], pyro
        compiled = {name.removesuffix(COMPILED): pyro[name] for name in pyro if COMPILED in name}
        times = [ratio(part.get(name)) for part in ratios for name in COVARIANCES[1:]]
        sizes = (row["bytes"].get(name) for name in COVARIANCES)
        memory = " / ".join("–" if size is None else megabytes(size) for size in sizes)
        head = [row["network"], str(row["batch"]), f"{row['milliseconds']['diagonal']:.2f}"]
        lines.append([*head, *times, ratio(compiled.get("backward")), memory])
    head = ["network", "batch", "diagonal, ms, NumPyro", "backward", "full"]
    head += [
        "backward, Pyro",
        "full, Pyro",
        "backward, Pyro compiled",
        "MB: diagonal / backward / full",
    ]
    return table(head, lines)


def ratio(value: float | None) -> str:
    """A ratio of times with the digits that it has."""
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def megabytes(size: int) -> str:
    """A size."""
    return f"{size / 1e6:.1f}" if size < 1e8 else f"{size / 1e6:.0f}"


def widths(read: Reader) -> str:
    """Standard deviations of random networks over the drawn ones: diagonal / backward / full."""
    rows = rows_of(read, "widths")
    depths = sorted({row["depth"] for row in rows})
    lines = []
    for key in dict.fromkeys((row["width"], row["activation"]) for row in rows):
        found = {row["depth"]: row for row in rows if (row["width"], row["activation"]) == key}
        lines.append([str(key[0]), key[1], *(of_three(found.get(depth)) for depth in depths)])
    return table(["units", "function", *(f"{depth} layers" for depth in depths)], lines)


def of_three(row: dict[str, Any] | None) -> str:
    """A ratio by each covariance."""
    return " / ".join(f"{row[name]:.3f}" for name in COVARIANCES) if row else "–"


def trained(read: Reader) -> str:
    """ELBOs and standard deviations of trained networks."""
    lines = []
    for row in rows_of(read, "accuracy"):
        layers = row["network"].count("-") - 1
        true = f"{row['elbo_by_draws']:.1f} ± {row['standard_error']:.1f}"
        stated = (
            f"{row[name]['elbo']:.1f} ({row[name]['difference']:+.1%})" for name in COVARIANCES
        )
        deviations = " / ".join(f"{row[name]['sd']:.2f}" for name in COVARIANCES)
        means = " / ".join(f"{row[name]['mean']:.2f}" for name in COVARIANCES)
        start = [row["activation"], str(layers), row["trained_by"], true]
        lines.append([*start, *stated, deviations, means, "yes" if row["warned"] else "no"])
    head = ["function", "layers", "trained by", "ELBO by draws", *COVARIANCES]
    return table([*head, "sd / drawn sd", "error of the mean / sd", "`fit` warns"], lines)


def shared(read: Reader) -> str:
    """Standard deviations of programs that use a weight more than once."""
    others = rows_of(read, "shared_pyro")
    lines = [
        [row["program"], row["activation"], str(row["deviation"])]
        + [f"{part:.3f}" for part in (row["diagonal"], row["backward"], other["backward"])]
        for row, other in zip(rows_of(read, "shared_numpyro"), others, strict=True)
    ]
    head = ["program", "function", "sd of the weights", "diagonal, copies of the weight"]
    return table([*head, "backward, NumPyro", "backward, Pyro"], lines)


def splits(read: Reader, name: str = "uci_covariance") -> str:
    """Test log-likelihoods of the UCI sets, and what backward gains over the others."""
    results = read(f"backward/{name}")
    ways = [way for way in COVARIANCES if all(way in found for found in results.values())]
    others = [way for way in ways if way != "backward"]
    lines = []
    for data, found in results.items():
        own = [score(found[way][SCORE]) for way in ways]
        gains = [difference(found, way, kind) for way in others for kind in (SCORE, DRAWN)]
        lines.append([data, str(len(found["backward"][SCORE]["per_split"])), *own, *gains])
    gains = [cell for way in others for cell in (f"backward − {way}", "the same by draws")]
    return table(["set", "splits", *ways, *gains], lines)


def score(part: dict[str, Any]) -> str:
    """Mean and standard error."""
    return f"{part['mean']:.3f} ± {part['standard_error']:.3f}"


def difference(found: dict[str, Any], other: str, kind: str) -> str:
    """Mean and standard error of what backward gains, split by split."""
    values = np.subtract(*(found[name][kind]["per_split"] for name in ("backward", other)))
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


TABLES = {
    "covariance, cost": costs,
    "covariance, widths": widths,
    "covariance, trained": trained,
    "covariance, shared weights": shared,
    "covariance, UCI": splits,
    "covariance, UCI, few steps": partial(splits, name="uci_covariance_6000"),
}
