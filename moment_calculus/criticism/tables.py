"""Format rows of text as an aligned table, also with combining accents such as in k̂."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return one line for each row of cells, with the columns aligned."""
    lines = [list(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in lines]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Return the printed width of a text: a combining accent, as in k̂, takes no column."""
    return sum(not unicodedata.combining(letter) for letter in text)
