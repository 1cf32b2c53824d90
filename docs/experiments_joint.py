"""Tables of Gaussians with covariances, and their linear response, beside NUTS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Reader = Callable[[str], dict[str, Any]]
HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}


def agreement(read: Reader) -> str:
    """Means and standard deviations of the coordinates, in the framework where most were asked."""
    rows = []
    for name, found in read("covariances").items():
        fits = {host: found[f"{host} fit"] for host in HOSTS if f"{host} fit" in found}
        host = max(fits, key=lambda host: fits[host]["coordinates"])
        fit, (low, high) = fits[host], fits[host]["ratios"]
        losses = [part["loss"] for part in fits.values()]
        row = [title(name, found), HOSTS[host], str(fit["coordinates"])]
        row += [f"{found['reference']['r_hat']:.3f}", percent(fit["means"])]
        row += [f"{fit['worst mean']:.2f}", percent(fit["deviations"]), f"{low:.2f}–{high:.2f}"]
        apart = f"{max(losses) - min(losses):.0e}" if len(losses) > 1 else "–"
        rows.append([*row, f"{fit['loss']:.4f}", apart])
    head = ["model", "in", "coordinates", "R-hat of NUTS", "means within .15 sd", "worst, sd"]
    head += ["sds .9–1.1", "sds / NUTS'", "loss", "between frameworks"]
    return table(head, rows)


def times(read: Reader) -> str:
    """Steps and processor seconds of both frameworks beside NUTS; a dash where not measured."""
    rows = []
    for name, found in read("covariances").items():
        parts = (part for host in HOSTS for part in costs(found, host))
        rows.append([title(name, found), *parts])
    titles = ("steps", "fit + response, s", "NUTS, s (ratio)")
    return table(
        ["model", *(f"{part}, {host}" for host in HOSTS.values() for part in titles)], rows
    )


def costs(found: dict[str, Any], host: str) -> list[str]:
    """Steps, seconds, and those of NUTS in one framework."""
    fit, nuts = (found.get(f"{host} {task}") for task in ("fit", "nuts"))
    parts = [fit["seconds"][part] for part in ("fit", "response of scalars")] if fit else []
    ours = " + ".join(f"{part:.1f}" for part in parts) or "–"
    seconds = f"{nuts['seconds']:.0f}" if nuts else "–"
    ratio = f" ({sum(parts) / nuts['seconds']:.2f})" if nuts and parts else ""
    return [str(fit["steps"]) if fit else "–", ours, seconds + ratio]


CHECKS = "k̂ of GaussianGuide", "k̂ of linear response", "standard deviations"


def diagnosis(read: Reader) -> str:
    """What `diagnose` says of models that a Gaussian holds badly."""
    rows = []
    for name, found in read("covariances").items():
        if said := found.get("pyro diagnosis"):
            parts = (said["checks"].get(check, ["–", ""]) for check in CHECKS)
            cells = [f"{value}: {verdict}" for value, verdict in parts]
            rows.append([title(name, found), *cells, "yes" if said["is good"] else "no"])
    return table(["model", *CHECKS, "called good"], rows)


def thousands(read: Reader) -> str:
    """Models of thousands of coordinates, in blocks or chains."""
    rows = []
    for name, found in read("plates").items():
        for host, of_host in HOSTS.items():
            fit = found[host]
            (count, width), seconds = fit["blocks"][0], fit["seconds"]
            row = [name, of_host, f"{fit['shared']} + {count} × {width}", str(fit["steps"])]
            row += [f"{seconds[part]:.1f}" for part in ("fit", "response", "second fit")]
            row += [percent(fit[part]) for part in ("means", "deviations")]
            rows.append([*row, f"{found['nuts']['seconds']:.0f}"])
    head = ["model", "in", "shared + blocks", "steps", "fit, s", "response, s", "second fit, s"]
    return table([*head, "means within .15 sd", "sds .9–1.1", "NUTS in NumPyro, s"], rows)


def title(name: str, found: dict[str, Any]) -> str:
    """A model; in brackets if it is not counted."""
    return name if found["is_counted"] else f"({name})"


def percent(share: float) -> str:
    """A share of coordinates."""
    return f"{100 * share:.0f} %"


TABLES = {
    "covariances, agreement": agreement,
    "covariances, times": times,
    "covariances, diagnosis": diagnosis,
    "covariances, thousands": thousands,
}
