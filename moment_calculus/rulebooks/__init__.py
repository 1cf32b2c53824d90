"""The rule books by name: each file of this package defines one as ``BOOK`` and is found here."""

from __future__ import annotations

import importlib
import pkgutil

from moment_calculus.values.propagation import (
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
    covariance: str,  # "full" or "diagonal"
    rules: str | RuleBook,  # a key of RULEBOOKS, or the user's own book
    categorical: str = "points",  # "points", "pairs", "tilted", "jensen", "delta" or "sample"
    memory_limit: float | None = None,  # bytes of one covariance; by default half of the memory
    categorical_draws: int = 1,  # draws of the logits, for "sample"
) -> Propagation:
    """Return the ``Propagation`` of the user's options; raise ValueError if one is unknown."""
    if not isinstance(rules, RuleBook):
        check_choice("rules", rules, tuple(RULEBOOKS))
        rules = RULEBOOKS[rules]
    limit = half_of_memory() if memory_limit is None else memory_limit
    return Propagation(covariance, rules, categorical, limit, categorical_draws)
