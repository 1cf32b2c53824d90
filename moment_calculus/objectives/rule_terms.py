"""Terms of the loss that a rule book adds where it replaces a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.values import Gaussian
from moment_calculus.values.ancestry import ancestors


def rule_terms(values: Iterable[Any], seen: set[int]) -> Iterator[tuple[str, Array]]:
    """Yield a name and a term in the shape of the function, for each that values depend on.

    ``seen`` holds the numbers of values whose terms were taken before.
    """
    for value in values:
        for part in ancestors(value if isinstance(value, Gaussian) else value.base):
            if part.step.function is None or part.serial in seen:
                continue
            seen.add(part.serial)
            base, function = part.step.function
            term = base.propagation.rulebook.term(function, base.mean, base.variance)
            if term is not None:
                yield _name(function.name, part.step.line), term


def over_rows(term: Array, batch: tuple[int, ...]) -> tuple[Array, bool]:
    """Return sums over all axes behind a batch and True; without a batch their sum and False."""
    xp, shape = namespace(term), tuple(term.shape)
    if shape[: len(batch)] != batch:
        return xp.sum(term), False
    axes = tuple(range(len(batch), len(shape)))
    return (xp.sum(term, axis=axes) if axes else term), True


def _name(function: str, line: str) -> str:
    path, _, number = line.rpartition(":")
    return f"{function} at {Path(path).name}:{number}" if line else function
