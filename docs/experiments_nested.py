"""Tables of nested inference and of its references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Reader = Callable[[str], dict[str, Any]]


def references(read: Reader) -> str:
    """Evidence of each model, how it was found, and what is known of its error."""
    rows = []
    for name, found in read("nested_references").items():
        apart = found.get("total variation between halves")
        halves = found.get("log evidence of halves")
        rows.append(
            [
                name,
                ", ".join(found["hyperparameters"]),
                found["method"],
                " × ".join(str(part) for part in found["grid"]),
                f"{found['log evidence']:.3f}",
                f"{found['effective draws']} of {found['draws']}" if halves else "–",
                f"{abs(halves[0] - halves[1]) / 2:.4f}" if halves else "–",
                f"{max(apart.values()) / 2:.5f}" if apart else "–",
                f"{found['share of weight at the edge']:.0e}",
                f"{found['seconds']:.0f}",
            ]
        )
    head = ["model", "hyperparameters", "by", "points", "log evidence", "effective draws"]
    head += ["half the halves' difference: evidence", "total variation"]
    return table([*head, "weight at the edge", "seconds"], rows)


def skewness(read: Reader) -> str:
    """Skewness of the latent elements, which a Gaussian given hyperparameters has none of."""
    rows = []
    for name, found in read("nested_references").items():
        parts = [f"{site} {part['skewness']:+.2f}" for site, part in found["elements"].items()]
        rows.append([name, ", ".join(parts)])
    return table(["model", "skewness of elements"], rows)


TABLES: dict[str, Callable[[Reader], str]] = {
    "nested, references": references,
    "nested, skewness": skewness,
}
