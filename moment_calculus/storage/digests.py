"""Headers as canonical JSON, and the digest by which a flipped byte is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def canonical(value: Any) -> str:
    """Spell a value as JSON in the one way that the digest is computed of.

    Floats are spelt by Python's ``repr``, so that they are read back bit for bit; infinities and
    NaN as ``Infinity`` and ``NaN``, which Python reads and JSON proper does not know.

    Args:
        value: what :func:`check_json` accepts.

    Returns:
        ASCII text with sorted keys and without spaces.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def check_json(value: Any, place: str = "header") -> None:
    """Refuse what JSON would change in silence, such as tuples and keys that are integers.

    Args:
        value: the value.
        place: how the message calls it.

    Raises:
        TypeError: if the value is not made of dicts with str keys, lists, str, int, float, bool
            and None alone; the message names the place and the type.
    """
    if type(value) is dict:
        for key, part in value.items():
            _check_key(key, place)
            check_json(part, f"{place}[{key!r}]")
    elif type(value) is list:
        for index, part in enumerate(value):
            check_json(part, f"{place}[{index}]")
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"{place} is of type {type(value).__name__}, which JSON does not know")


def _check_key(key: object, place: str) -> None:
    if type(key) is not str:
        raise TypeError(f"{place} has the key {key!r} of type {type(key).__name__}, and not str")


def digest(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a header and of the names, dtypes, shapes and bytes of arrays.

    Args:
        header: what :func:`check_json` accepts.
        arrays: contiguous arrays by name, of little-endian dtypes.

    Returns:
        64 hexadecimal digits.
    """
    state = hashlib.sha256(canonical(header).encode())
    for name, array in sorted(arrays.items()):
        # Dtype and shape say how many bytes follow: no two contents make the same stream.
        state.update(f"\n{canonical([name, array.dtype.name, list(array.shape)])}\n".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()
