"""The parts of a variance: what each site, each input and each Gaussian match adds."""

from __future__ import annotations

from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.values import Gaussian
from moment_calculus.values.backward.asked import of_elements
from moment_calculus.values.backward.sweep import Part, Sweep
from moment_calculus.values.step import Product

SITE, COVARIANCE, NOISE, MATCH = "site", "covariance", "noise x noise", "Gaussian match"


class Share(NamedTuple):
    """What one source adds to the variance of every element."""

    name: str  # of a site, an input or an operation
    kind: str  # one of SITE, COVARIANCE, NOISE and MATCH
    variance: Array  # of the shape of what is asked for
    elements: Array | None  # [*shape, m], for each of the m components of a site or an input


def shares_of(value: Any) -> list[Share]:
    """Return what adds up to the variance of a value; nothing of an array that is certain."""
    if not hasattr(value, "gaussian"):
        return []
    gaussian = value.gaussian()
    sweep = Sweep(of_elements([gaussian]), split=True)
    functions = _numbered(sweep.parts)
    shares: dict[tuple[str, str], Share] = {}
    for part in sweep.parts:
        name, kind = _label(part, functions)
        known = shares.get((name, kind))
        share = _share(part, name, kind, gaussian)
        shares[name, kind] = share if known is None else _sum(known, share)
    return sorted(shares.values(), key=lambda share: (share.kind != SITE, share.name))


def _share(part: Part, name: str, kind: str, value: Gaussian) -> Share:
    xp = namespace(part.covariance)
    variance = xp.broadcast_to(part.covariance[..., 0, 0], value.shape)
    elements = part.elements if kind == SITE and not part.value.step.inputs else None
    if elements is not None:
        elements = xp.broadcast_to(elements, (*value.shape, elements.shape[-1]))
    return Share(name, kind, variance, elements)


def _sum(one: Share, other: Share) -> Share:
    """Return the sum of two shares; of several values the components are not told apart."""
    return Share(one.name, one.kind, one.variance + other.variance, None)


def _numbered(parts: list[Part]) -> dict[int, str]:
    """Return the names of functions by serial, with their number among those of the name."""
    values = {part.value.serial: part.value for part in parts if part.value.step.function}
    counts: dict[str, int] = {}
    names = {}
    for serial in sorted(values):
        name = values[serial].step.function[1].name  # type: ignore[index]
        counts[name] = counts.get(name, 0) + 1
        names[serial] = f"{name} {counts[name]}"
    return names


def _label(part: Part, functions: dict[int, str]) -> tuple[str, str]:
    value, step = part.value, part.value.step
    sites = ", ".join(sorted(value.sites))
    if value.serial in functions:
        return functions[value.serial], MATCH
    if isinstance(step, LinearMap) and step.random_matrix is not None:
        return ", ".join(sorted(step.random_matrix.sites)), NOISE
    if isinstance(step, Product):
        return sites, NOISE
    if part.kind == "covariance":
        return sites, COVARIANCE
    is_site = not step.inputs or step.entries(value) is not None
    if is_site:
        return sites, SITE
    return type(step).__name__.strip("_").removesuffix("Step").lower(), MATCH
