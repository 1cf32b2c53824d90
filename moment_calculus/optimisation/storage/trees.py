"""Split nested dicts, lists and tuples into JSON and named arrays, and join them again.

None, bool, int, float, str and lists stand for themselves. Anything else is an object
with one key: ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}`` (in order; keys may
be integers) and ``{"array": name}``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

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

    def packed(part: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > DEEPEST:
            start = _at(path[:8])
            raise ValueError(f"{start} … is nested deeper than {DEEPEST}, or contains itself")
        if part is None or type(part) in PLAIN:
            return part
        if type(part) is dict:
            _check_keys(part, path)
            return {"dict": [[key, packed(part[key], (*path, key))] for key in part]}
        if type(part) in (list, tuple):
            parts = [packed(inner, (*path, index)) for index, inner in enumerate(part)]
            return parts if type(part) is list else {"tuple": parts}
        array = to_array(part)
        if not isinstance(array, np.ndarray):
            kind = type(part).__qualname__
            raise TypeError(f"{_at(path)} is of type {kind}, which cannot be stored")
        name = _name(path)
        while name in arrays or name == "__metadata__":  # {"a/b": …, "a": {"b": …}}
            name += "'"
        arrays[name] = array
        return {"array": name}

    return packed(tree, ()), arrays


def _check_keys(tree: dict, path: tuple[Any, ...]) -> None:
    for key in tree:
        if type(key) not in (str, int):
            kind = type(key).__qualname__
            raise TypeError(f"{_at(path)} has the key {key!r} of type {kind}, and not str or int")


def _at(path: tuple[Any, ...]) -> str:
    return "tree" + "".join(f"[{key!r}]" for key in path)


def _name(path: tuple[Any, ...]) -> str:
    """Return the path joined by slashes, with characters that UTF-8 lacks escaped."""
    return "/".join(map(str, path)).encode(errors="backslashreplace").decode() or "value"


def unpack(skeleton: Any, arrays: Mapping[str, np.ndarray], *, path: object = "") -> Any:
    """Join what :func:`pack` split; errors name the file's path.

    Arrays that the skeleton does not name are ignored.
    """
    return _Unpacker(arrays, path).tree(skeleton, 0)


class _Unpacker:
    def __init__(self, arrays: Mapping[str, np.ndarray], path: object) -> None:
        self.arrays, self.path = arrays, path

    def tree(self, skeleton: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise self.malformed(f"nested deeper than {DEEPEST}")
        if skeleton is None or type(skeleton) in PLAIN:
            return skeleton
        if type(skeleton) is list:
            return [self.tree(part, depth + 1) for part in skeleton]
        if type(skeleton) is not dict or len(skeleton) != 1:
            what = f"{reprlib.repr(skeleton)} where a value or an object with one key belongs"
            raise self.malformed(what)
        return self.object(*next(iter(skeleton.items())), depth)

    def object(self, tag: Any, content: Any, depth: int) -> Any:
        if tag == "array" and type(content) is str and content in self.arrays:
            return self.arrays[content]
        if tag == "tuple" and type(content) is list:
            return tuple(self.tree(part, depth + 1) for part in content)
        if tag == "dict" and type(content) is list and all(map(_is_item, content)):
            result = {key: self.tree(part, depth + 1) for key, part in content}
            if len(result) < len(content):
                raise self.malformed("a dict has the same key twice")
            return result
        what = f"{reprlib.repr({tag: content})}, which is no array in it, no tuple and no dict"
        raise self.malformed(what)

    def malformed(self, what: str) -> StoredFileError:
        return StoredFileError(f"its tree is malformed: {what}", path=self.path, remedy=SAVE_AGAIN)


def _is_item(item: Any) -> bool:
    return type(item) is list and len(item) == 2 and type(item[0]) in (str, int)
