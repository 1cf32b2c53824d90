"""Places from which a program reads values, as containers with a key, and who owns the code.

Closures, lengths, slots, array contents and Pyro's parameters are not items of a list or
dictionary; the classes here give all of them the interface ``container[key]``.
"""

from __future__ import annotations

import operator
import sys
import types
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyro

_LIBRARIES = frozenset("guides moment_calculus numpy pyro pyro_moments scipy torch".split())
_STANDARD = sys.stdlib_module_names - {"__main__"}


class Cell:
    """A closure's variable as a container."""

    def __init__(self, cell: types.CellType) -> None:
        self.cell = cell

    def __getitem__(self, key: Any) -> Any:
        return self.cell.cell_contents


class Length:
    """The length of a list or dictionary as an item."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> int:
        return len(self.items)


class Attributes:
    """Attributes outside ``__dict__`` as items: slots, and those of functions."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self.item, key)
        except AttributeError as error:
            raise LookupError(key) from error


class Digest:
    """A number for the contents of an array or a set, as an item."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> int:
        if isinstance(self.items, np.ndarray):
            return zlib.crc32(np.ascontiguousarray(self.items).view(np.uint8).data)
        return hash(frozenset(map(id, self.items)))


class ParameterStore:
    """Pyro's current store of unconstrained parameters, which may replace its dictionary."""

    def __getitem__(self, name: str) -> Any:
        return pyro.get_param_store()._params[name]


class UnchangedCheck:
    """Tests whether all places hold the same objects as before."""

    # Loops run in C, by map: the test is made at every call of a program.
    def __init__(self, entries: Sequence[tuple]) -> None:  # of (container, key, value, ...)
        lengths, cells, attributes, items = (
            [entry for entry in entries if _kind_of(entry[0]) is kind]
            for kind in (Length, Cell, Attributes, None)
        )
        self.sized = [entry[0].items for entry in lengths]
        self.owners = [
            *(entry[0].cell for entry in cells),
            *(entry[0].item for entry in attributes),
        ]
        self.names = [*("cell_contents" for _ in cells), *(entry[1] for entry in attributes)]
        self.containers, self.keys = [e[0] for e in items], [e[1] for e in items]
        self.values = [entry[2] for entry in (*lengths, *cells, *attributes, *items)]

    def __call__(self) -> bool:
        """Return whether they do; an equal object, or none at all, is another one."""
        try:
            return all(map(operator.is_, self._current(), self.values))
        except (LookupError, ValueError, AttributeError):
            return False

    def _current(self) -> Iterator[Any]:
        return chain(
            map(len, self.sized),
            map(getattr, self.owners, self.names),
            map(operator.getitem, self.containers, self.keys),
        )


def _kind_of(container: Any) -> type | None:
    return type(container) if isinstance(container, Length | Cell | Attributes) else None


def slots_of(kind: type) -> set[str]:
    """Return the slots that the user's own classes give to objects of a class."""
    slots_: set[str] = set()
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ()) if not of_library(base) else ()
        slots_ |= {slots} if isinstance(slots, str) else set(slots)
    return slots_ - {"__dict__", "__weakref__"}


def of_library(item: Any) -> bool:
    """Return whether a function, class or module belongs to this library, Pyro or Python."""
    package = _package(item)
    return package in _LIBRARIES or package in _STANDARD


def is_foreign(kind: Any) -> bool:
    """Return whether a class or module is of Python or another package, as a data frame is."""
    package = _package(kind)
    if package in _LIBRARIES or package in _STANDARD:
        return package in _STANDARD
    file = getattr(sys.modules.get(_module_name(kind)), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _module_name(item: Any) -> str:
    name = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", "")
    return name if isinstance(name, str) else ""


def _package(item: Any) -> str:
    return _module_name(item).partition(".")[0]
