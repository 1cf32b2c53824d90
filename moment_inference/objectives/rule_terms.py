"""Terms of the loss that a rule book adds where it replaces a function.

Rule books may replace a function by a random one (variance back-propagation gates a ReLU), whose
divergence then belongs to the loss. Objectives collect these terms from the values of all sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from moment_calculus.functions.table import Rescaled
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.values import Gaussian
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.elementwise import Applied
from moment_calculus.values.propagation import RuleBook


def rule_terms(values: Iterable[Any], seen: set[int]) -> Iterator[tuple[str, Array]]:
    """Yield a name and a term in the shape of the function, for each that values depend on.

    ``seen`` holds the numbers of values whose terms were taken before.
    """
    for part in itertools.chain.from_iterable(map(_ancestors_with_terms, values)):
        step = part.step
        if not isinstance(step, Applied) or part.serial in seen:
            continue
        seen.add(part.serial)
        base, function = step.function
        term = _term(base.propagation.rulebook, function, base.mean, base.variance)
        if term is not None:
            yield _name_with_line(function.name, step.line), term


def _ancestors_with_terms(value: Any) -> Iterator[Gaussian]:
    """Yield the Gaussians that a value was computed from; none if its book has no terms."""
    base = getattr(value, "base", getattr(value, "source", value))
    if not isinstance(base, Gaussian) or not base.propagation.rulebook.has_terms:
        return
    yield from ancestors(base)
    applied = getattr(value, "recognised_function", None)
    if applied is not None and (result := base.memo.values.get(applied)) is not None:
        yield result


def _term(book: RuleBook, function: Any, mean: Array, variance: Array) -> Array | None:
    """Return the term of a function, or that of the function of which it is an image."""
    term = book.term(function, mean, variance)
    if term is not None or not isinstance(function, Rescaled):
        return term
    rate = function.inner
    return _term(book, function.activation, rate * mean, rate * rate * variance)


def over_rows(term: Array, batch: tuple[int, ...]) -> tuple[Array, bool]:
    """Return sums over all axes behind a batch and True; without a batch their sum and False."""
    xp, shape = namespace(term), tuple(term.shape)
    if shape[: len(batch)] != batch:
        return xp.sum(term), False
    axes = tuple(range(len(batch), len(shape)))
    return (xp.sum(term, axis=axes) if axes else term), True


def _name_with_line(function: str, line: str) -> str:
    path, _, number = line.rpartition(":")
    return f"{function} at {Path(path).name}:{number}" if line else function
