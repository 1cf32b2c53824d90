"""The tables of other tools beside the library, from what benchmarks/peers.py wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from how_fast import table

REFERENCE = "NUTS, NumPyro"
HEAD = ("", "seconds", "again", "test log-likelihood", "inside 90 %")


def row(name: str, parts: list[dict[str, Any]]) -> list[str]:
    """Seconds of the first part and of later ones, and means over all that were left out."""
    seconds = [part["seconds"] for part in parts]
    density, inside = (np.mean([part[k] for part in parts]) for k in ("log_likelihood", "inside"))
    times = f"{seconds[0]:.1f}", f"{np.mean(seconds[1:]):.1f}"
    return [name, *times, f"{density:.3f}", f"{inside:.0%}"]


def scored(found: dict[str, Any]) -> str:
    """A row for each contender of a task."""
    return table(HEAD, [row(name, parts) for name, parts in found.items()])


def beside_nuts(results: dict[str, Any]) -> str:
    """The same of the regression, and standard deviations of its weights over those of NUTS."""
    found = results["tasks"]["regression"]
    exact = [part["deviations"] for part in found[REFERENCE]]
    rows = []
    for name, parts in found.items():
        ratios = np.divide([part["deviations"] for part in parts], exact)
        words = f"{np.median(ratios):.2f} ({ratios.min():.2f}–{ratios.max():.2f})"
        rows.append([*row(name, parts), words])
    return table([*HEAD, "sd of weights / NUTS'"], rows)


def versions(results: dict[str, Any]) -> str:
    """Of the packages, and the number of processors."""
    rows = [*results["versions"].items(), ("processors", str(results["cores"]))]
    return table(["package", "version"], rows)
