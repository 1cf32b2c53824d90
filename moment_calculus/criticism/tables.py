"""Tables as text, whatever letters carry accents of their own."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines whose columns begin at the same places.

    Args:
        rows: cells, equally many in each.
    """
    lines = [list(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in lines]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Places that a text takes: a combining accent, as of k̂, takes none."""
    return sum(not unicodedata.combining(letter) for letter in text)
