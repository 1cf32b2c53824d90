"""Marks on rows: ``make test`` leaves the slow ones to ``make test-slow``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def slow(*row: Any) -> Any:
    """A row that repeats on a larger model what other rows assert."""
    return pytest.param(*row, marks=pytest.mark.slow)


def with_slow(rows: Iterable[Any], *chosen: Any) -> list[Any]:
    """Rows of which the chosen ones are slow."""
    rows = list(rows)
    assert set(chosen) <= set(rows), "a slow row is gone"
    return [slow(row) if row in chosen else row for row in rows]


def crossed_with_slow(first: Iterable[Any], second: Iterable[Any], *chosen: tuple) -> list[Any]:
    """Every pair of two lists; the chosen ones are slow."""
    pairs = list(itertools.product(first, second))
    assert set(chosen) <= set(pairs), "a slow pair is gone"
    return [slow(*pair) if pair in chosen else pair for pair in pairs]


# For tests of what both hosts share, where other tests assert that the hosts agree.
IN_PYRO = pytest.mark.parametrize("host", ["pyro"], indirect=True)

# For tests of what both hosts share: NumPyro's compiling costs seconds, and is slow's.
IN_PYRO_FIRST = pytest.mark.parametrize(
    "host", ["pyro", pytest.param("numpyro", marks=pytest.mark.slow)], indirect=True
)
