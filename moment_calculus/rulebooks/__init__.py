"""The rule books by name: a module of this package offers one as ``BOOK``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from moment_calculus.values.propagation import (
    EXACT,
    Propagation,
    RuleBook,
    check_choice,
    half_of_memory,
)

__all__ = ["RULEBOOKS", "propagation_by", "propagation_of"]

_MODULES = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
# A module without a book is one that books share, such as helpers.
_BOOKS = (EXACT, *(module.BOOK for module in _MODULES if hasattr(module, "BOOK")))
RULEBOOKS: dict[str, RuleBook] = {book.name: book for book in _BOOKS}


def propagation_of(
    covariance: str | None,  # one of COVARIANCES; None for what the guide names, or "full"
    rules: str | RuleBook,  # a key of RULEBOOKS, or the user's own book
    categorical: str | None = None,  # rule for classes; None for the book's, or "points"
    memory_limit: float | None = None,  # bytes of one covariance; by default half of the memory
    categorical_draws: int = 1,  # draws of the logits, for "sample"
) -> Propagation:
    """Return the ``Propagation`` of the user's options, or raise ValueError."""
    if not isinstance(rules, RuleBook):
        check_choice("rules", rules, tuple(RULEBOOKS))
        rules = RULEBOOKS[rules]
    limit = half_of_memory() if memory_limit is None else memory_limit
    by_guide = covariance is None
    options = rules, categorical, limit, categorical_draws, by_guide
    return Propagation("full" if covariance is None else covariance, *options)


def propagation_by(
    objective: Any,  # that of a fit; None for the defaults
    covariance: str | None,
    rules: str | RuleBook | None,
    categorical: str | None = None,
) -> Propagation:
    """Return the ``Propagation`` of an objective where the user names nothing else."""
    how = getattr(objective, "propagation", None)
    if rules is None and getattr(objective, "lacks_rules", False):
        raise objective.error("its rule book", "rules=")
    if not isinstance(how, Propagation):
        return propagation_of(covariance, "exact" if rules is None else rules, categorical)
    named = None if how.by_guide else how.covariance
    return propagation_of(
        named if covariance is None else covariance,
        how.rulebook if rules is None else rules,
        how.categorical if categorical is None else categorical,
        how.memory_limit,
        how.categorical_draws,
    )
