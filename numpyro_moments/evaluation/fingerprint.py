"""Compare models by what they compute: their code and the values that it refers to."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import sys
import types
import weakref
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import numpy as np

from moment_calculus import errors
from moment_calculus.numerics import private_apis

# Packages whose functions are the same as long as the process runs, and read nothing else.
LIBRARIES = errors.OWN_PACKAGES | frozenset(
    "jax jaxlib numpyro numpy scipy flax optax equinox array_api_compat math cmath functools "
    "itertools operator collections typing dataclasses abc contextlib numbers types enum "
    "warnings copy builtins".split()
)
IMPURE = frozenset("open globals locals eval exec input __import__ id".split())  # builtins
ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...), np.dtype, range, slice)
C_FUNCTIONS = (
    types.BuiltinFunctionType
    | types.MethodDescriptorType
    | types.WrapperDescriptorType
    | types.GetSetDescriptorType
    | types.MemberDescriptorType
    | np.ufunc
)
MOST_BYTES = 1 << 24  # of an array that is compared
OF_EVERY_CLASS = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __annotations__ __repr__ __str__ _abc_impl".split()
)
PLAIN_SIZE = 32  # bytes of an object of a class of Python; those of C have a state beyond


class Incomparable(Exception):
    """A value cannot be compared."""


def fingerprint(value: Any) -> Hashable:
    """Return what is equal for equal values: functions are compared by code and by what they read.

    It is made of numbers, names, code and digests of arrays, without references to the value.
    Incomparable is raised where a value depends on what is not seen: random generators, files,
    modules that are imported when a function runs, arrays that are traced or above 16 MB.
    """
    return _Fingerprint().of(value)


class _Fingerprint:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # numbers by identity, for cycles
        self._alive: list[Any] = []  # so that no identity is used twice
        self._open: set[int] = set()  # modules that are being read: some name each other

    def of(self, value: Any) -> Hashable:
        if isinstance(value, weakref.ref):
            value = value()
        if isinstance(value, enum.Enum) or type(value) in ATOMS:
            return type(value).__qualname__, repr(value)
        if id(value) in self._seen:
            return "seen", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if (name := _library_name(value)) is not None:
            return "library", name
        return type(value).__qualname__, *self._content(value)

    @functools.singledispatchmethod
    def _content(self, value: Any) -> Iterator[Hashable]:
        if type(value).__module__.startswith("jaxlib") and hasattr(value, "__wrapped__"):
            yield self.of(value.__wrapped__)  # jax.jit of a function
        else:
            yield from self._object(value)

    @_content.register(np.ndarray | np.generic | jax.Array)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield _digest(value)

    @_content.register(tuple | list)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from map(self.of, value)

    @_content.register(dict | types.MappingProxyType)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from ((self.of(key), self.of(part)) for key, part in value.items())

    @_content.register(set | frozenset)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from sorted(map(self.of, value), key=repr)

    @_content.register(types.MethodType | staticmethod | classmethod)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from (self.of(value.__func__), self.of(getattr(value, "__self__", None)))

    @_content.register(functools.partial)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from map(self.of, (value.func, value.args, value.keywords))

    @_content.register(property)
    def _(self, value: Any) -> Iterator[Hashable]:
        yield from map(self.of, (value.fget, value.fset))

    @_content.register(C_FUNCTIONS)
    def _(self, value: Any) -> Iterator[Hashable]:
        owner = getattr(value, "__self__", None)
        yield value.__name__
        yield None if isinstance(owner, types.ModuleType) else self.of(owner)

    @_content.register(types.FunctionType)
    def _(self, function: types.FunctionType) -> Iterator[Hashable]:
        yield function.__code__
        yield from map(self.of, (function.__defaults__, function.__kwdefaults__))
        names = {name for code in _nested(function.__code__) for name in code.co_names}
        for cell in function.__closure__ or ():
            yield from self._global(_content(cell), names)
        yield self.of(function.__dict__)
        known = function.__globals__
        if _root(known.get("__name__")) in LIBRARIES:
            return
        imported = [name for code in _nested(function.__code__) for name in _imports(code)]
        if any(_root(name) not in LIBRARIES for name in imported):
            raise Incomparable
        if names & IMPURE - known.keys():
            raise Incomparable
        for name in sorted(names & known.keys()):
            yield name
            yield from self._global(known[name], names)

    def _global(self, value: Any, names: set[str]) -> Iterator[Hashable]:
        if not isinstance(value, types.ModuleType):
            yield self.of(value)
            return
        root = _root(value.__name__)
        draws = root == "numpy" and "random" in names
        if draws or (root not in LIBRARIES and root in sys.stdlib_module_names):
            raise Incomparable  # its answers change: random, time, os
        if root not in LIBRARIES and id(value) not in self._open:
            self._open.add(id(value))
            parts = vars(value)
            for name in sorted(names & parts.keys()):
                yield name
                yield from self._global(parts[name], names)
            self._open.discard(id(value))

    @_content.register(type)
    def _(self, kind: type) -> Iterator[Hashable]:
        yield from (kind.__module__, self.of(type(kind)), *map(self.of, kind.__bases__))
        for name, part in vars(kind).items():
            if name not in OF_EVERY_CLASS:
                yield name
                yield self.of(part)

    def _object(self, value: Any) -> Iterator[Hashable]:
        # What is written in C has a state that is not seen: generators, iterators, locks.
        kinds = [kind for kind in type(value).__mro__ if kind is not object]
        slots = [name for kind in kinds for name in _slots(kind)]
        plain = type(value).__basicsize__ <= PLAIN_SIZE + 8 * len(slots)
        if not plain or not all("__module__" in vars(kind) for kind in kinds):
            raise Incomparable
        if not hasattr(value, "__dict__") and not slots:
            raise Incomparable
        yield self.of(type(value))
        derived = {name for kind in kinds for name in _cached(kind)}
        known = getattr(value, "__dict__", {})
        yield self.of({name: part for name, part in known.items() if name not in derived})
        yield from (self.of(getattr(value, name)) for name in slots if hasattr(value, name))


def _cached(kind: type) -> Iterator[str]:
    """Return what a class of ours computes once, of the rest of an object."""
    if _root(kind.__module__) in errors.OWN_PACKAGES:
        for name, part in vars(kind).items():
            if isinstance(part, functools.cached_property):
                yield name


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in OF_EVERY_CLASS)


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _library_name(value: Any) -> str | None:
    """Return where a library has the value; None if it is no public part of one."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or _root(module) not in LIBRARIES:
        return None
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{module}.{path}" if found is value else None


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _nested(part)


@functools.lru_cache(512)
def _imports(code: types.CodeType) -> tuple[str, ...]:
    steps = dis.get_instructions(code)
    return tuple(step.argval for step in steps if step.opname == "IMPORT_NAME")


def _digest(array: Any) -> Hashable:
    if private_apis.is_traced(array) or array.dtype == object or array.nbytes > MOST_BYTES:
        raise Incomparable
    weak = bool(getattr(array, "weak_type", False))
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return str(array.dtype), _digest(jax.random.key_data(array))
    content = np.ascontiguousarray(array).tobytes()
    return str(array.dtype), array.shape, weak, hashlib.blake2b(content).digest()
