"""Split nested dicts, lists and tuples into JSON and named arrays, and join them again.

None, bool, int, float, str and lists stand for themselves. Anything else is an object
with one key: ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}`` (in order; keys may
be integers) and ``{"array": name}``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from moment_calculus.optimisation.storage.files import SAVE_AGAIN, StoredFileError

# Far above what programs nest, far below Python's recursion limit, which the JSON encoder
# reaches.
DEEPEST = 100

PLAIN = (bool, int, float, str)


def pack(
    tree: Any,
    # From a leaf to its array; None or NotImplemented for a leaf that is no array.
    to_array: Callable[[Any], np.ndarray | None],
) -> tuple[Any, dict[str, np.ndarray]]:
    """Split a tree into JSON and its arrays by path-like names such as ``layers/0/weight``.

    Subclasses of the containers (named tuples, ordered dicts) raise TypeError, since they
    would be read back as something else.
    """
    arrays: dict[str, np.ndarray] = {}
    return _Packer(to_array, arrays).pack_tree(tree, ()), arrays


def unpack(
    skeleton: Any,
    arrays: Mapping[str, np.ndarray],
    of_array: Callable[[np.ndarray], Any],
    *,
    path: object = "",  # of the file, for the error message
) -> Any:
    """Join what :func:`pack` split; arrays that the skeleton does not name are ignored."""
    return _Unpacker(arrays, of_array, path).unpack_tree(skeleton, 0)


class _Packer:
    def __init__(self, to_array: Callable[[Any], Any], arrays: dict[str, np.ndarray]) -> None:
        self.to_array, self.arrays = to_array, arrays

    def pack_tree(self, tree: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > DEEPEST:
            start = _at(path[:8])
            raise ValueError(f"{start} … is nested deeper than {DEEPEST}, or contains itself")
        if tree is None or type(tree) in PLAIN:
            return tree
        if type(tree) is dict:
            return {"dict": [self.item(key, part, path) for key, part in tree.items()]}
        if type(tree) in (list, tuple):
            parts = [self.pack_tree(part, (*path, index)) for index, part in enumerate(tree)]
            return parts if type(tree) is list else {"tuple": parts}
        return {"array": self.store(tree, path)}

    def item(self, key: Any, part: Any, path: tuple[Any, ...]) -> list[Any]:
        if type(key) not in (str, int):
            kind = type(key).__qualname__
            raise TypeError(f"{_at(path)} has the key {key!r} of type {kind}, and not str or int")
        return [key, self.pack_tree(part, (*path, key))]

    def store(self, leaf: Any, path: tuple[Any, ...]) -> str:
        """Store the array of a leaf and return its name."""
        array = self.to_array(leaf)
        if not isinstance(array, np.ndarray):
            kind = type(leaf).__qualname__
            raise TypeError(f"{_at(path)} is of type {kind}, which cannot be stored")
        name = _name(path)
        while name in self.arrays or name == "__metadata__":  # {"a/b": …, "a": {"b": …}}
            name += "'"
        self.arrays[name] = array
        return name


def _at(path: tuple[Any, ...]) -> str:
    return "tree" + "".join(f"[{key!r}]" for key in path)


def _name(path: tuple[Any, ...]) -> str:
    """Return the path joined by slashes, with characters that UTF-8 lacks escaped."""
    return "/".join(map(str, path)).encode(errors="backslashreplace").decode() or "value"


class _Unpacker:
    def __init__(
        self, arrays: Mapping[str, np.ndarray], of_array: Callable[[np.ndarray], Any], path: object
    ) -> None:
        self.arrays, self.of_array, self.path = arrays, of_array, path

    def unpack_tree(self, skeleton: Any, depth: int) -> Any:
        if depth > DEEPEST:
            self.fail(f"nested deeper than {DEEPEST}")
        if skeleton is None or type(skeleton) in PLAIN:
            return skeleton
        if type(skeleton) is list:
            return [self.unpack_tree(part, depth + 1) for part in skeleton]
        if type(skeleton) is not dict or len(skeleton) != 1:
            self.fail(f"{reprlib.repr(skeleton)} where a value or an object with one key belongs")
        return self.unpack_object(*next(iter(skeleton.items())), depth)

    def unpack_object(self, tag: Any, content: Any, depth: int) -> Any:
        if tag == "array" and type(content) is str and content in self.arrays:
            return self.of_array(self.arrays[content])
        if tag == "tuple" and type(content) is list:
            return tuple(self.unpack_tree(part, depth + 1) for part in content)
        if tag == "dict" and type(content) is list and all(map(_is_item, content)):
            return self.unpack_dict(content, depth)
        self.fail(f"{reprlib.repr({tag: content})}, which is no array in it, no tuple and no dict")

    def unpack_dict(self, items: list[Any], depth: int) -> dict[str | int, Any]:
        result = {key: self.unpack_tree(part, depth + 1) for key, part in items}
        if len(result) < len(items):
            self.fail("a dict has the same key twice")
        return result

    def fail(self, what: str) -> NoReturn:
        raise StoredFileError(f"its tree is malformed: {what}", path=self.path, remedy=SAVE_AGAIN)


def _is_item(item: Any) -> bool:
    return type(item) is list and len(item) == 2 and type(item[0]) in (str, int)
