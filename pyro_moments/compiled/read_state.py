"""Find what a program reads besides its arguments: attributes, closures, globals, parameters.

A captured program is a function of tensors alone. Tensors from elsewhere are looked up
again at every call, where they were; if anything else there has changed, the program is
captured anew. Closures, lengths, slots, array contents and Pyro's parameters are not
items of a list or dictionary; classes give all of them the interface ``container[key]``.
"""

from __future__ import annotations

import functools
import sys
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyro
import torch
from pyro.nn import PyroModule

from moment_calculus import errors
from pyro_moments._host import unconstrained_parameter

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
WATCHED = 2**20  # bytes of the largest array whose contents are compared
CROWD = 1000  # of longer lists only identity and length are compared
_BOOKKEEPING = (vars(torch.nn.Module()).keys() | vars(PyroModule()).keys()) - {"training"}

Slot = tuple[Any, Any]  # a container and a key
Entry = tuple[Any, Any, Any, bool]  # slot, what was there, whether the user owns it
_LIBRARIES = errors.OWN_PACKAGES | frozenset("numpy pyro scipy torch".split())
_STANDARD = sys.stdlib_module_names - {"__main__"}


class Computed:
    """What a function reads by a key, such as a closure's variable, as items of a container."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)


def _content_of(cell: types.CellType) -> Computed:
    """Return a closure's variable as an item."""
    return Computed(lambda _: cell.cell_contents)


def _attributes_of(item: Any) -> Computed:
    """Return attributes outside ``__dict__`` as items: slots, and those of functions."""

    def read(key: str) -> Any:
        try:
            return getattr(item, key)
        except AttributeError as error:
            raise LookupError(key) from error

    return Computed(read)


def _digest(items: Any) -> int:
    """Return a number for the contents of an array or a set."""
    if isinstance(items, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(items).view(np.uint8).data)
    return hash(frozenset(map(id, items)))


class ReadState:
    """Places from which programs can read, and what was there.

    Modules, functions, methods, handlers, classes, the user's Python modules, and the
    containers, arrays and objects that they hold are searched. The contents of NumPy
    arrays above a mebibyte and objects of other packages are not.
    """

    def __init__(self, roots: tuple[Any, ...], parameters: tuple[str, ...] = ()) -> None:
        self.watched: list[Entry] = []
        self.tensors: dict[int, list[Slot]] = {}
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is used twice
        # Pyro's store may replace its dictionary.
        store = Computed(unconstrained_parameter)
        for name in parameters:
            if name in pyro.get_param_store():
                self._watch(store, name, True)
        for root in roots:
            self._visit(root, True)

    def location_of(self, tensor: torch.Tensor, *, pinned: bool = False) -> Slot:
        """Return where to look a tensor up; one in several places must stay in all."""
        slots = self.tensors.get(id(tensor), [])
        if len(slots) == 1 and not pinned:  # a pinned tensor must not be replaced
            return slots[0]
        self.watched.extend((container, key, tensor, True) for container, key in slots)
        return (tensor,), 0

    def unchanged(self) -> bool:
        """Return whether everything but the tensors is what it was."""
        return next(self._changes(), None) is None

    def ignore_library_changes(self) -> str | None:
        """Forget what libraries change at every run; return a name that the user changed."""
        changes = list(self._changes())
        changed = {id(entry) for entry in changes}
        self.watched = [entry for entry in self.watched if id(entry) not in changed]
        return next((str(key) for _, key, _, is_users in changes if is_users), None)

    def _changes(self) -> Iterator[Entry]:
        for entry in self.watched:
            container, key, value, _ = entry
            try:
                current = container[key]
            except (LookupError, ValueError):  # ValueError: an empty cell
                yield entry
                continue
            if current is not value and not _equal(current, value):
                yield entry

    def _watch(self, container: Any, key: Any, is_users: bool) -> None:
        value = container[key]
        if isinstance(value, torch.Tensor):
            self._seen[id(value)] = value
            self.tensors.setdefault(id(value), []).append((container, key))
            return
        self.watched.append((container, key, value, is_users))
        self._visit(value, is_users)

    def _visit(self, item: Any, is_users: bool) -> None:
        if isinstance(item, (*PLAIN, torch.Tensor, types.ModuleType)) or id(item) in self._seen:
            return
        if isinstance(item, type):
            return self._classes(item)
        self._seen[id(item)] = item
        for kind, visit in _VISITS:
            if isinstance(item, kind):
                return visit(self, item, is_users)
        if not is_foreign(type(item)):
            self._object(item)

    def _function(self, function: types.FunctionType, is_users: bool) -> None:
        is_users, cells = not of_library(function), function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if _filled(cell):
                self._watch(_content_of(cell), name, is_users)
        for part in ("__defaults__", "__kwdefaults__", "__code__") if is_users else ():
            self._watch(_attributes_of(function), part, is_users)
        names = set(_names(function.__code__)) if is_users else set()
        for name in names & function.__globals__.keys():
            self._watch(function.__globals__, name, is_users)
            module = function.__globals__[name]
            if isinstance(module, types.ModuleType) and not is_foreign(module):
                self._module_globals(module, names)

    def _module_globals(self, module: types.ModuleType, names: set[str]) -> None:
        if not of_library(module):
            for name in names & vars(module).keys():
                self._watch(vars(module), name, True)

    def _method(self, method: types.MethodType, is_users: bool) -> None:
        self._visit(method.__func__, is_users)
        self._visit(method.__self__, is_users)

    def _partial(self, partial: functools.partial, is_users: bool) -> None:
        for part in (partial.func, partial.args, partial.keywords):
            self._visit(part, is_users)

    def _module(self, module: torch.nn.Module, is_users: bool) -> None:
        state = vars(module)
        for part in ("_parameters", "_buffers", "_modules", "_pyro_samples"):
            self._visit(state.get(part), not of_library(type(module)))
        keys = [key for key in state if key not in _BOOKKEEPING]
        if of_library(type(module)):
            keys = [key for key in keys if isinstance(state[key], PLAIN)]
        self._attributes(module, keys)

    def _object(self, item: Any) -> None:
        if hasattr(item, "__dict__"):
            self._attributes(item, vars(item).keys())
            self._watch_attribute_count(item)
        is_users = not of_library(type(item))
        for key in slots_of(type(item)):
            if hasattr(item, key):
                self._watch(_attributes_of(item), key, is_users)
        self._classes(type(item))

    def _attributes(self, item: Any, keys: Any) -> None:
        for key in list(keys):
            self._watch(vars(item), key, not of_library(type(item)))
        self._classes(type(item))

    def _classes(self, kind: type) -> None:
        for base in kind.__mro__:
            if not (of_library(base) or is_foreign(base) or id(base) in self._seen):
                self._seen[id(base)] = base
                self._class(base)

    def _class(self, kind: type) -> None:
        slots = slots_of(kind)
        self._watch_attribute_count(kind)
        for key in [
            key
            for key, value in vars(kind).items()
            if not key.startswith("__") or isinstance(value, types.FunctionType)
        ]:
            if key not in slots:
                self._watch(vars(kind), key, True)

    def _watch_attribute_count(self, item: Any) -> None:
        """Watch the number of attributes: a new one would hide that of a class."""
        self._watch_number(len, vars(item), "number of attributes", False)

    def _watch_number(self, read: Callable, items: Any, name: str, is_users: bool) -> None:
        """Watch the length or the digest of an object."""
        self.watched.append((Computed(lambda _: read(items)), name, read(items), is_users))

    def _property(self, item: property, is_users: bool) -> None:
        self._visit(item.fget, is_users)

    def _wrapped(self, item: Any, is_users: bool) -> None:
        self._visit(item.__func__, is_users)

    def _array(self, array: np.ndarray, is_users: bool) -> None:
        if array.nbytes <= WATCHED and array.dtype != object:
            self._watch_number(_digest, array, "the contents of a NumPy array", is_users)

    def _set(self, items: set, is_users: bool) -> None:
        self._watch_number(_digest, items, "the contents of a set", is_users)

    def _entries(self, items: Any, is_users: bool) -> None:
        self._watch_number(len, items, "the length of a list or dictionary", is_users)
        if len(items) <= CROWD:
            for key in list(items) if isinstance(items, Mapping) else range(len(items)):
                self._watch(items, key, is_users)

    def _members(self, items: Any, is_users: bool) -> None:
        for index in range(len(items) if len(items) <= CROWD else 0):
            self._watch(items, index, is_users)


_VISITS: tuple[tuple[Any, Callable], ...] = (
    (torch.nn.Module, ReadState._module),
    (types.FunctionType, ReadState._function),
    (types.MethodType, ReadState._method),
    (functools.partial, ReadState._partial),
    (property, ReadState._property),
    ((staticmethod, classmethod), ReadState._wrapped),
    (np.ndarray, ReadState._array),
    (set, ReadState._set),
    ((dict, list), ReadState._entries),
    (tuple, ReadState._members),
)


def _equal(current: Any, value: Any) -> bool:
    return type(current) is type(value) and isinstance(value, PLAIN) and current == value


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names in a function and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def slots_of(kind: type) -> set[str]:
    """Return the slots that the user's own classes give to objects of a class."""
    slots_: set[str] = set()
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ()) if not of_library(base) else ()
        slots_ |= {slots} if isinstance(slots, str) else set(slots)
    return slots_ - {"__dict__", "__weakref__"}


def of_library(item: Any) -> bool:
    """Return whether a function, class or module is of this library, Pyro or Python."""
    package = _package(item)
    return package in _LIBRARIES or package in _STANDARD


def is_foreign(kind: Any) -> bool:
    """Return whether a class or module is of Python or another package."""
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
