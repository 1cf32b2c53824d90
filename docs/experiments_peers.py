"""Tables of other tools beside the library, of benchmarks/peers.py and peers_uci.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from how_fast import table

REFERENCE = "NUTS, NumPyro"
DIVERGED = -100.0  # test log-likelihood of a row, below which a training counts as diverged
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


def uci(results: dict[str, Any]) -> str:
    """Mean test log-likelihoods, and seconds once warm; splits where they are not all."""
    sets = results["sets"]
    most = max(len(found["seconds"]) for one in sets.values() for found in one.values())
    names = list(dict.fromkeys(name for found in sets.values() for name in found))
    rows = [[name, *(cell(found.get(name), most) for found in sets.values())] for name in names]
    return table(["", *sets], rows)


def cell(found: dict[str, list[float]] | None, most: int) -> str:
    """A mean log-likelihood, seconds once warm, and how many splits where they are not all."""
    if found is None:
        return ""
    splits = len(found["seconds"])
    of = "" if splits == most else f", {splits} of {most}"
    seconds = np.mean(found["seconds"][1:] or found["seconds"])
    scores = np.asarray(found["log_likelihood"])
    trained = scores > DIVERGED
    of += "" if trained.all() else f", {(~trained).sum()} diverged"
    return f"{scores[trained].mean():.2f} ({seconds:.1f} s{of})"


def uci_gains(results: dict[str, Any], ours: str = "this library, NumPyro") -> str:
    """Log-likelihood of the library less that of another tool, with its standard error."""
    sets = results["sets"]
    names = list(dict.fromkeys(name for found in sets.values() for name in found if name != ours))
    rows = [
        [name, *(_gain(found[ours], found.get(name)) for found in sets.values())] for name in names
    ]
    return table([f"{ours}, less", *sets], rows)


def _gain(ours: dict[str, list[float]], other: dict[str, list[float]] | None) -> str:
    if other is None:
        return ""
    theirs = np.asarray(other["log_likelihood"])
    gaps = (np.asarray(ours["log_likelihood"])[: len(theirs)] - theirs)[theirs > DIVERGED]
    error = f" ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.2f}" if len(gaps) > 1 else " (one split)"
    return f"{gaps.mean():+.2f}{error}"


TABLES = {
    "peers, regression": lambda read: beside_nuts(read("peers")),
    "peers, network": lambda read: scored(read("peers")["tasks"]["network"]),
    "peers, versions": lambda read: versions(read("peers")),
    "peers, UCI": lambda read: uci(read("peers_uci")),
    "peers, UCI gains": lambda read: uci_gains(read("peers_uci")),
}
