"""The rule books: a file each, which names its book ``BOOK``. To add one, write its file."""

from __future__ import annotations

import importlib
import pkgutil

from moment_calculus.numerics.rulebook import (
    EXACT,
    Propagation,
    RuleBook,
    check_choice,
    half_of_memory,
)

__all__ = ["RULEBOOKS", "propagation_of"]

_FILES = [
    importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)
]
RULEBOOKS: dict[str, RuleBook] = {book.name: book for book in (EXACT, *(f.BOOK for f in _FILES))}


def propagation_of(
    covariance: str,
    rules: str | RuleBook,
    categorical: str = "points",
    memory_limit: float | None = None,
    categorical_draws: int = 1,
) -> Propagation:
    """How randomness flows, from what a user gives.

    Args:
        covariance: ``"full"`` or ``"diagonal"``.
        rules: a key of :data:`RULEBOOKS`, or a rule book of the user's own.
        categorical: the rule for classes, ``"points"``, ``"pairs"``, ``"tilted"``, ``"jensen"``,
            ``"delta"`` or ``"sample"``.
        memory_limit: bytes that one covariance may take; by default half of the memory.
        categorical_draws: number of draws of the logits for ``"sample"``.

    Raises:
        ValueError: if a name is unknown (the message lists the candidates), or the limit is
            not positive, or there are no draws.
    """
    if not isinstance(rules, RuleBook):
        check_choice("rules", rules, tuple(RULEBOOKS))
        rules = RULEBOOKS[rules]
    limit = half_of_memory() if memory_limit is None else memory_limit
    return Propagation(covariance, rules, categorical, limit, categorical_draws)
