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


def measured(read: Reader) -> str:
    """Errors of hyperparameters, evidence and latent elements; seconds beside NUTS."""
    rows = []
    for name, found in read("nested").items():
        first = found["numpyro fit"]
        elements = [part["total variation"] for part in first["elements"].values()]
        seconds = [found[key]["seconds"] for key in ("numpyro fit", "pyro fit")]
        nuts = found.get("numpyro nuts", {}).get("seconds")
        rows.append(
            [
                name,
                f"{max(first['total variation'].values()):.4f}",
                f"{first['evidence']:+.4f} ± {first['error of the evidence']:.4f}",
                f"{max(elements):.4f}",
                *(f"{each['first']:.1f}, {each['second']:.1f}" for each in seconds),
                f"{nuts['first']:.0f}, {nuts['second']:.0f}" if nuts else "–",
            ]
        )
    head = ["model", "total variation of hyperparameters", "error of the evidence ± predicted"]
    head += ["total variation of latent elements", "NumPyro: first call, second", "Pyro"]
    return table([*head, "NUTS in NumPyro"], rows)


def calibrated(read: Reader) -> str:
    """Ranks of the true spread, and coverage of the evidence's predicted error."""
    found = read("nested_calibration")
    ranks, evidence = found["ranks"]["numpyro"], found["evidence"]["numpyro"]
    counts = ", ".join(map(str, ranks["counts"]))
    gaps = ", ".join(map(str, evidence["gaps of the ELBO"]))
    rows = [
        ["true spreads in ten cells of equal posterior mass", counts],
        ["p of a χ² test that they are uniform", f"{ranks['p']:.3f}"],
        ["evidence within its predicted error", f"{evidence['covered']} of {evidence['of']}"],
        ["largest error of the evidence, nats", f"{evidence['largest error']:.4f}"],
        ["median of the predicted error, nats", f"{evidence['median predicted error']:.4f}"],
        ["gap of the ELBO, nats: least, median, most", gaps],
        ["worst prediction of a gap, relative", f"{evidence['worst prediction of a gap']:.3f}"],
    ]
    return table(["quantity", "value"], rows)


TABLES: dict[str, Callable[[Reader], str]] = {
    "nested, references": references,
    "nested, skewness": skewness,
    "nested, measured": measured,
    "nested, calibrated": calibrated,
}
