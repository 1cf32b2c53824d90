"""What a program reads besides its arguments: attributes, closures, globals and parameters.

A captured program is a function of tensors alone. Tensors that the program found elsewhere are
looked up again at every call, in the place where they were found; whatever else was found there
has to be what it was, or the program is captured anew.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyro
import torch
from pyro.nn import PyroModule

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
CROWD = 1000  # longer lists are compared by identity and length alone
_LIBRARIES = frozenset("guides moment_calculus numpy pyro pyro_moments scipy torch".split())
_STANDARD = sys.stdlib_module_names - {"__main__"}
_BOOKKEEPING = (vars(torch.nn.Module()).keys() | vars(PyroModule()).keys()) - {"training"}

Slot = tuple[Any, Any]  # a container and a key


class _Cell:
    """A closure's variable as a container."""

    def __init__(self, cell: types.CellType) -> None:
        self.cell = cell

    def __getitem__(self, key: Any) -> Any:
        return self.cell.cell_contents


class _Length:
    """The length of a list or dictionary as an item of its own."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> int:
        return len(self.items)


class _ParameterStore:
    """Pyro's store of unconstrained parameters, whichever dictionary it uses by now."""

    def __getitem__(self, name: str) -> Any:
        return pyro.get_param_store()._params[name]


class Surroundings:
    """Places from which programs can read, and what was there.

    Modules, functions with their closures and globals, methods, handlers, and the lists,
    dictionaries and objects they hold are searched. Attributes of Python modules, the contents of
    NumPy arrays, and objects of other packages are not.

    Args:
        roots: the model and the guide.
        parameters: names in Pyro's parameter store.
    """

    def __init__(self, roots: tuple[Any, ...], parameters: tuple[str, ...] = ()) -> None:
        self.fixed: list[tuple[Any, Any, Any, bool]] = []
        self.tensors: dict[int, list[Slot]] = {}
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is used twice
        store = _ParameterStore()
        for name in parameters:
            if name in pyro.get_param_store():
                self._note(store, name, True)
        for root in roots:
            self._visit(root, True)

    def place(self, tensor: torch.Tensor, *, pinned: bool = False) -> Slot:
        """Where to look a tensor up; one that is held in several places has to stay in all of them.

        Args:
            tensor: one that the program read.
            pinned: whether another tensor in its place would not do.
        """
        slots = self.tensors.get(id(tensor), [])
        if len(slots) == 1 and not pinned:
            return slots[0]
        self.fixed.extend((container, key, tensor, True) for container, key in slots)
        return (tensor,), 0

    def unchanged(self) -> bool:
        """Whether everything but the tensors is what it was."""
        return next(self._changes(), None) is None

    def settle(self) -> str | None:
        """Forget what the libraries change at every call; call it after the program has run.

        Returns:
            The name of something that the user's own code has changed, or None.
        """
        changes = list(self._changes())
        changed = {id(entry) for entry in changes}
        self.fixed = [entry for entry in self.fixed if id(entry) not in changed]
        return next((str(key) for _, key, _, own in changes if own), None)

    def _changes(self) -> Iterator[tuple[Any, Any, Any, bool]]:
        for entry in self.fixed:
            container, key, value, _ = entry
            try:
                current = container[key]
            except (LookupError, ValueError):  # ValueError: an empty closure
                yield entry
                continue
            if current is not value and not _equal(current, value):
                yield entry

    def _note(self, container: Any, key: Any, own: bool) -> None:
        value = container[key]
        if isinstance(value, torch.Tensor):
            self._seen[id(value)] = value
            self.tensors.setdefault(id(value), []).append((container, key))
            return
        self.fixed.append((container, key, value, own))
        self._visit(value, own)

    def _visit(self, item: Any, own: bool) -> None:
        if isinstance(item, (*PLAIN, torch.Tensor, type, types.ModuleType)):
            return
        if id(item) in self._seen:
            return
        self._seen[id(item)] = item
        for kind, visit in _VISITS:
            if isinstance(item, kind):
                return visit(self, item, own)
        if hasattr(item, "__dict__") and not _is_foreign(type(item)):
            self._attributes(item, vars(item).keys())

    def _function(self, function: types.FunctionType, own: bool) -> None:
        own, cells = not _of_library(function), function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if _filled(cell):
                self._note(_Cell(cell), name, own)
        self._visit(function.__defaults__, own)
        self._visit(function.__kwdefaults__, own)
        for name in _names(function.__code__) if own else ():
            if name in function.__globals__:
                self._note(function.__globals__, name, own)

    def _method(self, method: types.MethodType, own: bool) -> None:
        self._visit(method.__func__, own)
        self._visit(method.__self__, own)

    def _partial(self, partial: functools.partial, own: bool) -> None:
        for part in (partial.func, partial.args, partial.keywords):
            self._visit(part, own)

    def _module(self, module: torch.nn.Module, own: bool) -> None:
        state = vars(module)
        for part in ("_parameters", "_buffers", "_modules", "_pyro_samples"):
            self._visit(state.get(part), not _of_library(type(module)))
        keys = [key for key in state if key not in _BOOKKEEPING]
        if _of_library(type(module)):
            keys = [key for key in keys if isinstance(state[key], PLAIN)]
        self._attributes(module, keys)

    def _attributes(self, item: Any, keys: Any) -> None:
        kind = type(item)
        for key in list(keys):
            self._note(vars(item), key, not _of_library(kind))
        for base in kind.__mro__:
            if not _of_library(base):
                self._class(base)

    def _class(self, kind: type) -> None:
        if id(kind) in self._seen:
            return
        self._seen[id(kind)] = kind
        for key, value in vars(kind).items():
            if isinstance(value, types.FunctionType):
                self._visit(value, True)
            elif not key.startswith("__") and isinstance(value, (*PLAIN, torch.Tensor)):
                self._note(vars(kind), key, True)

    def _entries(self, items: Any, own: bool) -> None:
        self.fixed.append((_Length(items), "the length of a list or dictionary", len(items), own))
        if len(items) <= CROWD:
            for key in list(items) if isinstance(items, Mapping) else range(len(items)):
                self._note(items, key, own)

    def _members(self, items: Any, own: bool) -> None:
        for place in range(len(items) if len(items) <= CROWD else 0):
            self._note(items, place, own)


_VISITS: tuple[tuple[Any, Callable], ...] = (
    (torch.nn.Module, Surroundings._module),
    (types.FunctionType, Surroundings._function),
    (types.MethodType, Surroundings._method),
    (functools.partial, Surroundings._partial),
    ((dict, list), Surroundings._entries),
    (tuple, Surroundings._members),
)


def _equal(current: Any, value: Any) -> bool:
    return type(current) is type(value) and isinstance(value, PLAIN) and current == value


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _of_library(item: Any) -> bool:
    """Whether a function or class belongs to this library, its hosts or Python itself."""
    package = _package(item)
    return package in _LIBRARIES or package in _STANDARD


def _is_foreign(kind: type) -> bool:
    """Whether a class is neither the user's own nor a part of the hosts, such as a data frame."""
    package = _package(kind)
    if package in _LIBRARIES or package in _STANDARD:
        return package in _STANDARD
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _package(item: Any) -> str:
    return (getattr(item, "__module__", None) or "").partition(".")[0]


def _names(code: types.CodeType) -> Iterator[str]:
    """Global names in a function and the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
