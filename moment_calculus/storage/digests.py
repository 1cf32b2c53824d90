"""Encode headers as canonical JSON, and compute the digest that reveals a damaged file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def canonical(value: Any) -> str:
    """Return JSON in the one form that enters the digest: sorted keys, no spaces, ASCII.

    Floats have Python's ``repr``, which is read back bit for bit; ``Infinity`` and ``NaN`` are not
    standard JSON, but Python reads them.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def check_json(value: Any, place: str = "header") -> None:
    """Raise TypeError for values that JSON would silently change, such as tuples, integer keys."""
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
    """Return the SHA-256 of a header and of names, dtypes, shapes and bytes of arrays, in hex."""
    # The arrays are contiguous and of little-endian dtypes.
    state = hashlib.sha256(canonical(header).encode())
    for name, array in sorted(arrays.items()):
        # Dtype and shape say how many bytes follow: no two contents make the same stream.
        state.update(f"\n{canonical([name, array.dtype.name, list(array.shape)])}\n".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()
