"""Show results as aligned text or data frames; import optional packages."""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

INSTALL = 'pip install "pyro-moments[diagnostics]"'


def optional_package(name: str, use: str) -> Any:
    """Import a package; raise ImportError with the install command if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{use}: {INSTALL}") from error


def data_frame(rows: Sequence[Any], index: Sequence[Any], names: str | list[str]) -> Any:
    """Return a ``pandas.DataFrame`` of rows by column, with the names of its index."""
    pandas = optional_package("pandas", "tables need pandas")
    frame = pandas.DataFrame(rows)
    frame.index = pandas.Index(index).set_names(names)
    return frame


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return one line for each row of cells, with the columns aligned to the left."""
    lines = [list(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in lines]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Return the printed width: a combining accent, as in k̂, takes no column."""
    return sum(not unicodedata.combining(letter) for letter in text)


def numeric_table(formats: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a heading; formats such as ``">8.3f"`` are by column."""
    heading = [format(name, form.partition(".")[0]) for name, form in formats.items()]
    cells = [[format(*cell) for cell in zip(row, formats.values(), strict=True)] for row in rows]
    return "\n".join("  ".join(line) for line in [heading, *cells])


def scores_table(scores: Mapping[str, float]) -> str:
    """Return one line for each score, with four digits."""
    return "\n".join(f"{name:<18}  {score:>10.4g}" for name, score in scores.items())
