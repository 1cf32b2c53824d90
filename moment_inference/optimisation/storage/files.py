"""Named arrays and a JSON header in one safetensors file, with a digest of both.

Nested dicts, lists and tuples are split into JSON and arrays: None, bool, int, float, str
and lists stand for themselves. Anything else is an object with one key:
``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}`` (in order; keys may be integers)
and ``{"array": name}``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import reprlib
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


class StoredFileError(ValueError):
    """A file is damaged, foreign or too new; the message has path, cause and remedy.

    Args:
        cause: what is wrong with the file.
        path: the file; empty if it is not known.
        remedy: what the user can do about it.
    """

    def __init__(self, cause: str, *, path: object = "", remedy: str = "") -> None:
        self.cause, self.path, self.remedy = cause, str(path), remedy
        headline = f"{self.path}: {cause}" if self.path else cause
        super().__init__(f"{headline}\n  remedy: {remedy}" if remedy else headline)


FORMAT = 1
KEY = "pyro_moments"

# What all supported versions of safetensors store and load: complex64 came later, and
# float8 is loaded for torch only.
INTEGERS = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
DTYPES = INTEGERS | {"bool", "float16", "bfloat16", "float32", "float64"}


def write(
    path: str | os.PathLike[str],
    header: dict[str, Any],  # JSON; header["versions"]: versions of libraries by name
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write a file atomically: readers see the old file or the whole new one."""
    _check_header(header)
    stored = {_checked_name(name): _plain(name, array) for name, array in arrays.items()}
    record = {"format": FORMAT, "digest": digest(header, stored), "header": header}
    target = Path(os.path.realpath(path))  # behind links, which os.replace cuts
    with _replacing(target) as temporary:
        try:
            save_file(stored, temporary, metadata={KEY: canonical(record)})
        except SafetensorError as error:  # checked input can only fail by the disk
            raise OSError(f"{path}: could not be written: {error}") from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`write` wrote; nothing in the file is ever executed."""
    _check_file(path)
    try:
        with safe_open(os.fspath(path), framework="np") as stored:
            record = _record(path, (stored.metadata() or {}).get(KEY))
            arrays = {name: _array(path, stored, name) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        cause, remedy = diagnosis(path, error)
        raise StoredFileError(cause, path=path, remedy=remedy) from error
    if record["digest"] != digest(record["header"], arrays):
        raise StoredFileError(
            "is damaged: its content does not match its digest", path=path, remedy=SAVE_AGAIN
        )
    return record["header"], arrays


def _check_header(header: dict[str, Any]) -> None:
    if type(header) is not dict:
        raise TypeError(f"the header is of type {type(header).__name__}, and no dict")
    try:
        check_json(header)
    except RecursionError as error:
        raise ValueError("the header is nested too deeply, or contains itself") from error
    if not _are_versions(header.get("versions")):
        raise ValueError("header['versions'] has to be a dict of str by str")


def _are_versions(versions: object) -> bool:
    return isinstance(versions, dict) and all(isinstance(one, str) for one in versions.values())


def _checked_name(name: str) -> str:
    if type(name) is not str:
        raise TypeError(f"the name {name!r} of an array is of type {type(name).__name__}, not str")
    if name == "__metadata__" or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"no array can be stored under the name {name!r}")
    return name


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """Return the array as it is stored: contiguous and little-endian."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"'{name}' is of type {type(array).__name__}, and no NumPy array")
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"array '{name}' is of dtype {array.dtype.name}, which cannot be stored: convert it to "
            "real numbers of 8 to 64 bits (parts of complex numbers can be stored side by side)"
        )
    swapped = array.dtype.byteorder == ">"
    return np.array(array, array.dtype.newbyteorder("<") if swapped else None, order="C", copy=None)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces the target if no error occurs."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} for {target.name}: make it")
    temporary = target.parent / f".pyro_moments-{secrets.token_hex(8)}.tmp"
    try:
        temporary.touch(exist_ok=False)
        permissions = stat.S_IMODE((target if target.exists() else temporary).stat().st_mode)
        yield temporary
        temporary.chmod(permissions)  # safetensors may have replaced the file
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


def _flush_folder(folder: Path) -> None:
    """Flush the folder entry to disk where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_file(path: str | os.PathLike[str]) -> None:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise StoredFileError("is a folder", path=path, remedy="name the file in it")
    if not stat.S_ISREG(mode):
        raise StoredFileError("is no regular file", path=path, remedy="name a file on a disk")


def _record(path: str | os.PathLike[str], text: str | None) -> dict[str, Any]:
    """Return the checked record of format, digest and header from the file's metadata."""
    if text is None:
        raise StoredFileError(
            f"is a safetensors file of another program: its metadata lack '{KEY}'",
            path=path,
            remedy="read it with safetensors.numpy.load_file",
        )
    try:
        record = json.loads(text)
        canonical(record)  # the digest needs it: raises here if nested too deeply
    except (ValueError, RecursionError) as error:
        raise StoredFileError("its metadata are no JSON", path=path, remedy=SAVE_AGAIN) from error
    version = record.get("format") if isinstance(record, dict) else None
    if type(version) is int and version > FORMAT:
        cause = f"was written by a newer version of the library (format {version}, not {FORMAT})"
        raise StoredFileError(cause, path=path, remedy="update the library")
    if cause := _objection(record, version):
        raise StoredFileError(cause, path=path, remedy=SAVE_AGAIN)
    return record


def _objection(record: Any, version: Any) -> str:
    """Return what is wrong with a record; empty if it is sound."""
    if not isinstance(record, dict):
        return "its metadata are no JSON object"
    if type(version) is not int or version < 1:
        return "its metadata lack the version of the format, a positive integer"
    kinds = {"digest": str, "header": dict}
    if wrong := [key for key, kind in kinds.items() if type(record.get(key)) is not kind]:
        return f"its metadata lack {' and '.join(wrong)}, or have them of wrong types"
    if not _are_versions(record["header"].get("versions")):
        return "its header lacks the versions of the libraries, or has them of wrong types"
    return ""


def _array(path: str | os.PathLike[str], stored: Any, name: str) -> np.ndarray:
    kind = stored.get_slice(name).get_dtype()
    try:
        if kind == "BF16":
            importlib.import_module("ml_dtypes")  # makes the type known to NumPy
        return stored.get_tensor(name)
    # NumPy raises these for dtypes and shapes that it does not know.
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        remedy = "pip install ml_dtypes" if isinstance(error, ImportError) else SAVE_AGAIN
        cause = f"its array '{name}' ({kind}) cannot be read: {error}"
        raise StoredFileError(cause, path=path, remedy=remedy) from error


def canonical(value: Any) -> str:
    """Return JSON in the one form that enters the digest: sorted keys, no spaces, ASCII.

    Floats have Python's ``repr``, which is read back bit for bit; ``Infinity`` and
    ``NaN`` are not standard JSON, but Python reads them.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def check_json(value: Any, path: str = "header") -> None:
    """Raise TypeError for what JSON would change, such as tuples."""
    if type(value) is dict:
        for key, part in value.items():
            if type(key) is not str:
                kind = type(key).__name__
                raise TypeError(f"{path} has the key {key!r} of type {kind}, and not str")
            check_json(part, f"{path}[{key!r}]")
    elif type(value) is list:
        for index, part in enumerate(value):
            check_json(part, f"{path}[{index}]")
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"{path} is of type {type(value).__name__}, which JSON does not know")


def digest(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of header and arrays (names, dtypes, shapes, bytes)."""
    # The arrays are contiguous and of little-endian dtypes.
    state = hashlib.sha256(canonical(header).encode())
    for name, array in sorted(arrays.items()):
        # Dtype and shape say how many bytes follow: no two contents make the same stream.
        state.update(f"\n{canonical([name, array.dtype.name, list(array.shape)])}\n".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


# The largest header that safetensors reads.
LONGEST_HEADER = 100_000_000

SAVE_AGAIN = "save it again, or fetch an intact copy"
OWN_FORMAT = "name a file that this library saved; other formats are not converted"

# First bytes, cause and remedy. The oldest pickles have no magic bytes: "no safetensors
# file".
KINDS = (
    (b"PK\x03\x04", "is a zip archive, as torch.save and numpy.savez write", OWN_FORMAT),
    (b"\x93NUMPY", "is an array of numpy.save", OWN_FORMAT),
    (b"\x89HDF", "is an HDF5 file", OWN_FORMAT),
    (b"\x1f\x8b", "is compressed by gzip", "decompress it first"),
    *(
        (
            bytes([0x80, protocol]),
            "is a pickle, which could run code and is never loaded",
            OWN_FORMAT,
        )
        for protocol in (2, 3, 4, 5)
    ),
    (b"{", "is text (JSON, by its first letter) and no safetensors file", OWN_FORMAT),
    (b"[", "is text (JSON, by its first letter) and no safetensors file", OWN_FORMAT),
)


def diagnosis(path: str | os.PathLike[str], error: Exception) -> tuple[str, str]:
    """Return the cause and the remedy for a file on which safetensors raised an error."""
    with open(path, "rb") as file:
        start, size = file.read(9), os.fstat(file.fileno()).st_size
    if size == 0:
        return "is empty", SAVE_AGAIN
    length = int.from_bytes(start[:8], "little")
    if start[8:] == b"{" and length <= LONGEST_HEADER:
        if 8 + length > size:
            return f"is truncated: its header of {length} bytes ends behind its end", SAVE_AGAIN
        return f"is truncated or damaged: {error}", SAVE_AGAIN
    known = ((cause, remedy) for magic, cause, remedy in KINDS if start.startswith(magic))
    unknown = f"is no safetensors file, or truncated or damaged at its start ({error})"
    return next(known, (unknown, OWN_FORMAT))


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
