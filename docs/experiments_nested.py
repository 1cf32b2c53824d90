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


def chains(read: Reader) -> str:
    """Moments of NUTS' draws of hyperparameters beside the references."""
    rows = []
    for name, found in read("nested").items():
        parts = found.get("numpyro nuts", {}).get("hyperparameters", {})
        if not parts:
            continue
        moments = [
            [f"{site} {part[key]:{form}}" for site, part in parts.items()] for key, form in FORMS
        ]
        rows.append([name, *map(", ".join, moments)])
    return table(["model", "means, off by so many sds", "sds beside the references'"], rows)


FORMS = (("mean", "+.2f"), ("deviation", ".2f"))


def calibrated(read: Reader) -> str:
    """Ranks of the true spread by each method."""
    found = read("nested_calibration")
    titles = {"nested": found["ranks"]["numpyro"], "nested, Pyro": found["ranks"].get("pyro")}
    parts = titles | found.get("fits", {}).get("numpyro", {})
    rows = [
        [name, ", ".join(map(str, part["counts"])), p_value(part["p"])]
        for name, part in parts.items()
        if isinstance(part, dict)
    ]
    return table(
        ["method", "true spreads in ten cells of equal posterior mass", "χ² test: p"], rows
    )


def p_value(value: float) -> str:
    """Of a test."""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def evidence(read: Reader) -> str:
    """Coverage of the evidence's predicted error."""
    found = read("nested_calibration")["evidence"]["numpyro"]
    gaps = ", ".join(map(str, found["gaps of the ELBO"]))
    rows = [
        ["evidence within its predicted error", f"{found['covered']} of {found['of']}"],
        ["largest error of the evidence, nats", f"{found['largest error']:.4f}"],
        ["median of the predicted error, nats", f"{found['median predicted error']:.4f}"],
        ["gap of the ELBO, nats: least, median, most", gaps],
        ["worst prediction of a gap, relative", f"{found['worst prediction of a gap']:.3f}"],
    ]
    return table(["quantity", "value"], rows)


def likelihoods(read: Reader) -> str:
    """Ranks of all scalars of simulated data, and what failed."""
    rows = []
    for name, hosts in read("nested_likelihoods").items():
        found = hosts["numpyro"]
        ranks = ", ".join(f"{site} {p_value(part['p'])}" for site, part in found["ranks"].items())
        rows.append(
            [name, str(found["of"]), ranks, f"{len(found['failed'])}", f"{found['seconds']:.0f}"]
        )
    head = ["model", "data sets", "ranks: p of a χ² test", "failed or warned", "seconds"]
    return table(head, rows)


def stages(read: Reader) -> str:
    """Seconds of the grid of the ELBO, and of its correction."""
    rows = []
    for name, hosts in read("nested_stages").items():
        parts = [name, next(iter(hosts.values()))["by"]]
        for host in ("numpyro", "pyro"):
            found = hosts.get(host)
            parts += [f"{found['grid']:.1f}, {found['correction']:.1f}" if found else "–"]
        rows.append([*parts, f"{max(found['ratio'] for found in hosts.values()):.1f}"])
    head = ["model", "corrected by", "NumPyro: grid, correction", "Pyro"]
    return table([*head, "both / grid"], rows)


def sizes(read: Reader) -> str:
    """Seconds and memory by the number of local latents."""
    rows = []
    for name, found in read("nested_size").items():
        for host in ("numpyro", "pyro"):
            parts = [found.get(f"{host} {size}") for size in (2500, 5000, 10_000)]
            cells = [
                f"{part['seconds']:.0f} s, {part['mebibytes']} MiB" if part else "–"
                for part in parts
            ]
            if any(parts):
                rows.append([name, {"numpyro": "NumPyro", "pyro": "Pyro"}[host], *cells])
    return table(["model", "framework", "2 500", "5 000", "10 000"], rows)


TABLES: dict[str, Callable[[Reader], str]] = {
    "nested, references": references,
    "nested, skewness": skewness,
    "nested, measured": measured,
    "nested, chains": chains,
    "nested, stages": stages,
    "nested, sizes": sizes,
    "nested, calibrated": calibrated,
    "nested, evidence": evidence,
    "nested, likelihoods": likelihoods,
}
