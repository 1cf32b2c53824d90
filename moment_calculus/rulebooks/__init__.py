"""The rule books, one file each. To add one: write its file, and list it below."""

from __future__ import annotations

from moment_calculus.numerics.rulebook import (
    EXACT,
    Propagation,
    RuleBook,
    check_choice,
    half_of_memory,
)
from moment_calculus.rulebooks.dvi import DVI
from moment_calculus.rulebooks.first_order import FIRST_ORDER

__all__ = ["RULEBOOKS", "propagation_of"]

RULEBOOKS: dict[str, RuleBook] = {book.name: book for book in (EXACT, DVI, FIRST_ORDER)}


def propagation_of(
    covariance: str,
    rules: str | RuleBook,
    categorical: str = "delta",
    memory_limit: float | None = None,
    categorical_draws: int = 1,
) -> Propagation:
    """How randomness flows, from what a user gives.

    Args:
        covariance: ``"full"`` or ``"diagonal"``.
        rules: a key of :data:`RULEBOOKS`, or a rule book of the user's own.
        categorical: ``"delta"``, ``"jensen"`` or ``"sample"``.
        memory_limit: bytes that one covariance may take; by default half of the memory.
        categorical_draws: number of draws of the logits for ``"sample"``.

    Raises:
        ValueError: if a name is unknown (the message lists the candidates), or the limit is
            not positive, or there are no draws.
    """
    if not isinstance(rules, RuleBook):
        check_choice("rules", rules, RULEBOOKS)
        rules = RULEBOOKS[rules]
    limit = half_of_memory() if memory_limit is None else memory_limit
    return Propagation(covariance, rules, categorical, limit, categorical_draws)
