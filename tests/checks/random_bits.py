"""The random numbers of JAX by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(first: Any, second: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The hash of JAX's default keys: two words of a key, two of a count."""
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x = x + y
            y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def _hashed(keys: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Of every key with the numbers of every place of the shape."""
    words = np.asarray(jax.random.key_data(keys))
    words = words.reshape(*words.shape[:-1], *[1] * len(shape), 2)
    count = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return threefry(words[..., 0], words[..., 1], np.uint32(0), count)


def _bits(keys: Any, *, bit_width: int, shape: Sequence[int]) -> Any:
    high, low = _hashed(keys, shape)
    if bit_width == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(f"uint{bit_width}")


def _split(keys: Any, *, shape: Sequence[int]) -> Any:
    return jax.random.wrap_key_data(np.stack(_hashed(keys, shape), -1))


RANDOM: dict[str, Callable] = {"random_bits": _bits, "random_split": _split}
