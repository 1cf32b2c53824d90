"""Places that are no item of a list or dictionary, and whose they are."""

from __future__ import annotations

import sys
import types
import zlib
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
    """The length of a list or dictionary as an item of its own."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> int:
        return len(self.items)


class Attributes:
    """Attributes that are in no dictionary: slots, and those of functions."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self.item, key)
        except AttributeError as error:
            raise LookupError(key) from error


class Digest:
    """What is in an array or a set, as a number."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> int:
        if isinstance(self.items, np.ndarray):
            return zlib.crc32(np.ascontiguousarray(self.items).view(np.uint8).data)
        return hash(frozenset(map(id, self.items)))


class ParameterStore:
    """Pyro's store of unconstrained parameters, whichever dictionary it uses by now."""

    def __getitem__(self, name: str) -> Any:
        return pyro.get_param_store()._params[name]


def slots_of(kind: type) -> set[str]:
    """Names of the slots that the user's own classes give an object.

    Args:
        kind: its class.
    """
    found: set[str] = set()
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ()) if not of_library(base) else ()
        found |= {slots} if isinstance(slots, str) else set(slots)
    return found - {"__dict__", "__weakref__"}


def of_library(item: Any) -> bool:
    """Whether a function, class or module belongs to this library, its hosts or Python itself.

    Args:
        item: the function, class or module.
    """
    package = _package(item)
    return package in _LIBRARIES or package in _STANDARD


def is_foreign(kind: Any) -> bool:
    """Whether a class or module is neither the user's own nor of the hosts, as a data frame is.

    Args:
        kind: the class or module.
    """
    package = _package(kind)
    if package in _LIBRARIES or package in _STANDARD:
        return package in _STANDARD
    file = getattr(sys.modules.get(_module_name(kind)), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _module_name(item: Any) -> str:
    found = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", "")
    return found if isinstance(found, str) else ""


def _package(item: Any) -> str:
    return _module_name(item).partition(".")[0]
