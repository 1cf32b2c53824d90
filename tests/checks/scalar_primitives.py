"""What JAX computes element by element, and its random numbers from packed keys, by NumPy."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy import special

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


def packed(words: Any) -> Any:
    """Keys of random numbers as numbers of 64 bits, from their two words."""
    return np.array(words, np.uint32, order="C").view(np.uint64)[..., 0]


def words_of(keys: Any) -> Any:
    """The two words of packed keys."""
    return np.array(keys, order="C")[..., None].view(np.uint32)


def is_key(aval: Any) -> bool:
    """Of random numbers."""
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)


def as_keys(keys: Any) -> jax.Array:
    """Packed keys as JAX has them."""
    return jax.random.wrap_key_data(words_of(keys))


def _hashed(keys: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Of every key with the numbers of every place of the shape."""
    words = words_of(keys)
    words = words.reshape(*words.shape[:-1], *[1] * len(shape), 2)
    count = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return threefry(words[..., 0], words[..., 1], np.uint32(0), count)


def _bits(keys: Any, *, bit_width: int, shape: Sequence[int]) -> Any:
    high, low = _hashed(keys, shape)
    if bit_width == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(f"uint{bit_width}")


def _split(keys: Any, *, shape: Sequence[int]) -> Any:
    return packed(np.stack(_hashed(keys, shape), -1))


def _fold_in(keys: Any, data: Any) -> Any:
    words = words_of(keys)
    hashed = threefry(words[..., 0], words[..., 1], np.uint32(0), np.asarray(data, np.uint32))
    return packed(np.stack(hashed, -1))


def _iota_of_keys(*, shape: Sequence[int]) -> tuple[Any, Any]:
    """The number of every place, in two words."""
    count = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)


RANDOM: dict[str, Callable] = {
    "iota_2x32_shape": _iota_of_keys,
    "random_bits": _bits,
    "random_fold_in": _fold_in,
    "random_split": _split,
    "random_unwrap": words_of,
    "random_wrap": lambda words, **_: packed(words),
}

ELEMENTWISE: dict[str, Callable] = {
    "abs": np.abs,
    "add": np.add,
    "add_any": np.add,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": np.copy,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": special.psi,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y),
    "eq": np.equal,
    "erf": special.erf,
    "erf_inv": special.erfinv,
    "erfc": special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "lgamma": special.gammaln,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": special.expit,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "pow": np.power,
    "rem": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": lambda which, *cases: (
        np.where(which, *cases[::-1]) if len(cases) == 2 else np.choose(which, cases)
    ),
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.asarray,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "threefry2x32": threefry,
}
