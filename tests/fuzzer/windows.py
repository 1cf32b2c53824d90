"""Convolutions, pools, padding and largest entries among the operations of random programs."""

import numpy as np

from tests.fuzzer.drawing import Arguments, Shape, array, axis_and_keep, pick
from tests.fuzzer.kinds import each


def _batch(shape: Shape) -> dict[str, str] | None:
    """How a host that needs an axis of data gets it, and rid of it; None for other ranks."""
    return {2: {"lead": "[None]", "drop": "[0]"}, 3: {"lead": "", "drop": ""}}.get(len(shape))


def kernel(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Certain weights [out, channels, taps] of inputs [(n,) channels, length], and options."""
    if (batch := _batch(shape)) is None:
        return None
    padding = int(rng.integers(2))
    taps = int(rng.integers(1, min(shape[-1] + 2 * padding, 3) + 1))
    options = {"stride": int(rng.integers(1, 3)), "padding": padding, **batch}
    return {**options, "c": array(rng, (int(rng.integers(1, 3)), shape[-2], taps))}


def kernel_of(rng: np.random.Generator, inputs: Shape, weight: Shape) -> Arguments:
    """Options for a value as the weight of another one."""
    batch = _batch(inputs)
    if batch is None or len(weight) != 3 or inputs[-2] != weight[1] or inputs[-1] < weight[2]:
        return None
    return {"stride": 1, "padding": 0, **batch}


def transposed_kernel(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Certain weights [channels, out, taps] of a transposed convolution."""
    if (batch := _batch(shape)) is None:
        return None
    taps = int(rng.integers(1, 3))
    weight = array(rng, (shape[-2], int(rng.integers(1, 3)), taps))
    return {"stride": int(rng.integers(1, 3)), "reach": taps - 1, "c": weight, **batch}


def pool(rng: np.random.Generator, shape: Shape) -> Arguments:
    """A window along the trailing axis of two or three, and its stride."""
    if len(shape) not in (2, 3) or shape[-1] < 2:
        return None
    size, stride = int(rng.integers(2, shape[-1] + 1)), int(rng.integers(1, 3))
    lead = (1,) * (len(shape) - 1)
    return {"size": size, "stride": stride, "window": (*lead, size), "steps": (*lead, stride)}


def padding(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Entries before and after the trailing axis, and what they are."""
    if not shape:
        return None
    low, high = map(int, rng.integers(0, 3, size=2))
    return {"low": low, "high": high, "lead": len(shape) - 1, "number": float(array(rng, ()))}


def padding_by_entries(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Entries before and after the trailing axis, copied from it."""
    if len(shape) not in (2, 3) or shape[-1] < 2:
        return None
    low, high = map(int, rng.integers(0, shape[-1], size=2))
    modes = (("circular", "wrap"), ("reflect", "reflect"), ("replicate", "edge"))
    torch, jax = pick(rng, modes)
    return {"low": low, "high": high, "lead": len(shape) - 1, "torch": torch, "jax": jax}


def sequence(rng: np.random.Generator, shape: Shape) -> Arguments:
    """A value of channels along the trailing axis."""
    return _batch(shape)


def nearly_equal(drawn: dict, value: np.ndarray) -> bool:
    """Whether two entries along an axis are too near to tell the larger."""
    place = drawn.get("axis", -1)
    return bool((np.diff(np.sort(value, axis=place), axis=place) < 0.05).any())


_CONVOLUTION = (
    "jax.lax.conv_general_dilated({0}{lead}, %s, ({stride},), [({padding}, {padding})]){drop}"
)
_SIDES = "[(0, 0)] * {lead} + [({low}, {high})]"
WINDOWS = [
    each(
        "convolution",
        kernel,
        "F.conv1d({0}, {c}, stride={stride}, padding={padding})",
        _CONVOLUTION % "{c}",
        mixes=True,
        hard=True,  # full covariance refuses all but the first one
    ),
    each(
        "random_convolution",
        kernel_of,
        "F.conv1d({0}, {1}, None, {stride}, {padding})",
        _CONVOLUTION % "{1}",
        partner=kernel,
        mixes=True,
        hard=True,
    ),
    each(
        "transposed_convolution",
        transposed_kernel,
        "F.conv_transpose1d({0}, {c}, stride={stride})",
        "jax.lax.conv_general_dilated({0}{lead}, {c}[..., ::-1].swapaxes(0, 1), (1,), "
        "[({reach}, {reach})], lhs_dilation=({stride},)){drop}",
        mixes=True,
        hard=True,
    ),
    each(
        "average_pool",
        pool,
        "F.avg_pool1d({0}, {size}, {stride})",
        "jax.lax.reduce_window({0}, 0.0, jax.lax.add, {window}, {steps}, 'VALID') / {size}",
        mixes=True,
    ),
    each(
        "largest_pool",
        pool,
        "F.max_pool1d({0}, {size}, {stride})",
        "jax.lax.reduce_window({0}, -jnp.inf, jax.lax.max, {window}, {steps}, 'VALID')",
        unfit=nearly_equal,
        mixes=True,
    ),
    each(
        "largest",
        axis_and_keep,
        ("torch.amax({0}, {axis}, {keep})", "{0}.max({axis}, {keep})[0]"),
        "jnp.max({0}, {axis}, keepdims={keep})",
        unfit=nearly_equal,
        mixes=True,
    ),
    each(
        "pad",
        padding,
        "F.pad({0}, ({low}, {high}), value={number})",
        f"jnp.pad({{0}}, {_SIDES}, constant_values={{number}})",
    ),
    each(
        "pad_by_entries",
        padding_by_entries,
        "F.pad({0}, ({low}, {high}), {torch!r})",
        f"jnp.pad({{0}}, {_SIDES}, {{jax!r}})",
    ),
    each(
        "upsample",
        sequence,
        "F.interpolate({0}{lead}, scale_factor=2){drop}",
        "jnp.repeat({0}, 2, axis=-1)",
    ),
]
