"""Tables of nested inference beside nested Laplace, parts of itself, and other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Reader = Callable[[str], dict[str, Any]]
VARIANTS = ("nested", "without correction", "Laplace")
PROGRAMS = ("BlackJAX", "INLA", "DADVI")
MISSING = "–"


def largest(found: dict[str, Any] | None, part: str) -> str:
    """The largest total variation of a part, of hyperparameters or of elements."""
    values = (found or {}).get(part)
    return f"{max(values.values()):.4f}" if values else MISSING


def evidence(found: dict[str, Any]) -> str:
    """The error of the evidence, where there is one."""
    return f"{found['evidence']:+.3f}" if "evidence" in found else MISSING


def seconds(found: dict[str, Any], call: str) -> str:
    """Processor seconds of a call."""
    known = found.get("seconds", {})
    if call == "first" and "more than" in known:
        return f"more than {known['more than']}"
    return f"{known[call]:.1f}" if call in known else MISSING


def corrections(read: Reader) -> str:
    """Hyperparameters and the evidence on the same grid: corrected, not, and by Laplace."""
    rows = []
    for name, found in read("nested_peers").items():
        parts = [found.get(method, {}) for method in VARIANTS]
        scales = [largest(part, "total variation") for part in parts]
        rows.append([name, *scales, *map(evidence, parts)])
    head = ["model", "total variation of hyperparameters: nested", "without correction", "Laplace"]
    return table([*head, "error of the evidence: nested", *VARIANTS[1:]], rows)


def marginals(read: Reader) -> str:
    """Latent elements by the same, and by Gaussians alone; seconds, once compiled."""
    rows = []
    for name, found in read("nested_peers").items():
        parts = [found.get(method, {}) for method in VARIANTS]
        whole, *others = (largest(part, "elements") for part in parts)
        mixture = largest(parts[0], "elements of a mixture")
        rows.append([name, whole, mixture, *others, *(seconds(part, "second") for part in parts)])
    head = ["model", "total variation of latent elements: nested", "its Gaussians alone"]
    head += [*VARIANTS[1:], "seconds, second call: nested", *VARIANTS[1:]]
    return table(head, rows)


def programs(read: Reader) -> str:
    """A row for each program that was run on a model, and for `nested` beside it."""
    rows = []
    for name, found in read("nested_peers").items():
        tried = [program for program in PROGRAMS if program in found]
        for program in ["nested", *tried] if tried else []:
            rows.append([name if program == "nested" else "", program, *of(found.get(program, {}))])
    head = ["model", "program", "total variation of hyperparameters", "error of the evidence"]
    return table([*head, "total variation of latent elements", "first call", "second"], rows)


def of(found: dict[str, Any]) -> list[str]:
    """The cells of a program on a model; why it has none."""
    if "failure" in found:
        return [found["failure"].partition("\n")[0].replace("|", "/"), *[MISSING] * 4]
    parts = [largest(found, "total variation"), evidence(found), largest(found, "elements")]
    return [*parts, seconds(found, "first"), seconds(found, "second")]


TABLES: dict[str, Callable[[Reader], str]] = {
    "nested peers, corrections": corrections,
    "nested peers, marginals": marginals,
    "nested peers, programs": programs,
}
