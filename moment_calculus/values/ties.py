"""What within one value is tied to what: its elements of the batch, its features, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any


class Ties(IntEnum):
    """Which components of a value may depend on each other; the more, the larger.

    A value that says nothing of its ties has all of them.
    """

    NONE = 0
    FEATURES = 1
    """Features of one element of the batch; the elements are independent of each other."""
    ALL = 2


def most(values: Iterable[Any]) -> Ties:
    """The ties of values side by side that are independent of each other.

    Args:
        values: Gaussian values.
    """
    return max((value.ties for value in values), default=Ties.NONE)


def none_or_all(independent: bool) -> Ties:
    """Ties of a value of which only is known whether all of its components are independent.

    Args:
        independent: whether they are.
    """
    return Ties.NONE if independent else Ties.ALL
