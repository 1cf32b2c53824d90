"""Rows of convolutions, pools and padding; their kernels run on NumPy, torch and JAX arrays."""

from functools import partial

import array_api_compat
import numpy as np
import torch
import torch.nn.functional as F

from moment_calculus.numerics.arrays import namespace
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.concatenation import pad
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.operations.windows.convolution import (
    ConvolutionLayout,
    SpatialAxis,
    convolution,
)
from moment_calculus.operations.windows.largest import axis_maximum, window_maximum, window_minimum
from moment_calculus.operations.windows.pooling import Windows, window_sum
from moment_calculus.values.propagation import Propagation
from tests.cases.operand_kinds import LayerCase, Operand

DIAGONAL = Propagation(covariance="diagonal")


# ---------------------------------------------------------------------------------------------
# Kernels: sums over shifted slices


def convolved(inputs, weight, strides=None, *, stride=1, dilation=1):
    """[n, channels, length] with [out, channels, size]; torch's conv1d without padding."""
    xp, (stride,) = namespace(inputs), strides or (stride,)
    span = (weight.shape[-1] - 1) * dilation
    count = (inputs.shape[-1] - span - 1) // stride + 1
    parts = []
    for tap in range(weight.shape[-1]):
        start = tap * dilation
        entries = inputs[..., start : start + (count - 1) * stride + 1 : stride]
        parts.append(xp.matmul(weight[..., tap], entries))
    return sum(parts[1:], parts[0])


def summed(array, windows):
    """Sums over windows."""
    parts = [array[windows.slices_at(place, array.shape)] for place in windows.places()]
    return sum(parts[1:], parts[0])


def padded(array, config, fill):
    """Entries before, after and between those of an array."""
    if array_api_compat.is_jax_array(array):
        import jax

        return jax.lax.pad(array, jax.numpy.asarray(fill, array.dtype), config)
    for axis, (low, high, between) in enumerate(config):
        array = _padded_axis(array, axis, low, high, between, fill)
    return array


def _padded_axis(array, axis, low, high, between, fill):
    xp, lead = namespace(array), (slice(None),) * axis
    size = array.shape[axis]
    line = np.full(max(0, (size - 1) * (between + 1) + 1), -1)
    line[:: between + 1] = np.arange(size)
    line = np.concatenate([np.full(max(low, 0), -1), line, np.full(max(high, 0), -1)])
    line = line[max(-low, 0) : len(line) - max(-high, 0)]
    place, there = xp.asarray(np.maximum(line, 0)), xp.asarray(line >= 0)
    shape = [-1 if i == axis else 1 for i in range(array.ndim)]
    found = array[(*lead, place)]
    return xp.where(xp.reshape(there, shape), found, xp.zeros_like(found) + fill)


# ---------------------------------------------------------------------------------------------
# Rules


def convolve(x, w, stride=1, dilation=1):
    """A convolution over the trailing axis."""
    layout = ConvolutionLayout(
        spatial=(SpatialAxis(2, 2, 2, stride, dilation),),
        batch=(0, 0),
        features=-2,
        weight_features=0,
    )
    return convolution(x, w, partial(convolved, stride=stride, dilation=dilation), layout)


def over_last(size, stride=1, rank=3, dilation=1):
    """Windows over the trailing axis."""
    lead = (1,) * (rank - 1)
    return Windows((*lead, size), (*lead, stride), (*lead, dilation))


def pooled(value, size, stride=1, rank=3):
    return window_sum(value, over_last(size, stride, rank), summed)


def plain_pool(array, size, stride=1):
    return size * F.avg_pool1d(array, size, stride)


def padded_ends(value):
    return pad(value, padded, [(0, 0, 0), (0, 0, 0), (1, 2, 1)], 0.5)


def plain_padded_ends(array):
    return torch.as_tensor(0.5) + _spread(array - 0.5)


def _spread(array):
    """Zeros between the entries, one before and two after them."""
    between = torch.stack([array, torch.zeros_like(array)], -1).flatten(-2)[..., :-1]
    return F.pad(between, (1, 2))


IMAGE = Operand((2, 1, 3), "certain")
NOISY = Operand((2, 1, 3))
WEIGHT = Operand((2, 1, 2))
BIAS = Operand((2,))
FILTER = Operand((2, 1, 2), "certain")
ONE = Operand((1, 1, 2))
VECTOR = Operand((2, 4), "correlated")
PAIR = Operand((2, 2), "correlated")

WINDOWS = [
    LayerCase("convolution_certain_input", (IMAGE, WEIGHT), convolve, F.conv1d),
    LayerCase("convolution_certain_weight", (NOISY, FILTER), convolve, F.conv1d),
    LayerCase("convolution", (NOISY, ONE), convolve, F.conv1d),
    LayerCase("convolution_diagonal", (NOISY, ONE), convolve, F.conv1d, propagation=DIAGONAL),
    LayerCase(
        "convolution_two_channels", (Operand((1, 1, 2)), WEIGHT), convolve, F.conv1d, batched=()
    ),
    LayerCase(
        "convolution_strided_dilated",
        (Operand((2, 1, 5), "certain"), WEIGHT),
        partial(convolve, stride=2, dilation=2),
        lambda x, w: F.conv1d(x, w, stride=2, dilation=2),
    ),
    LayerCase(
        "pool_of_shared_weights",
        (Operand((2, 1, 4), "certain"), WEIGHT, BIAS),
        lambda x, w, b: pooled(add(convolve(x, w), reshape(b, (1, 2, 1))), 2),
        lambda x, w, b: plain_pool(F.conv1d(x, w, b), 2),
    ),
    LayerCase(
        "pool_of_shared_inputs",
        (Operand((2, 1, 4)), Operand((1, 1, 2), "certain")),
        lambda x, w: scale_shift(pooled(convolve(x, w), 2), 0.5),
        lambda x, w: F.avg_pool1d(F.conv1d(x, w), 2, 1),
    ),
    LayerCase(
        "pool_of_overlapping_pools",
        (Operand((2, 1, 5)),),
        lambda x: pooled(pooled(move_axis(move_axis(x, 1, 2), 2, 1), 2), 2, 2),
        lambda x: plain_pool(plain_pool(x, 2), 2, 2),
    ),
    LayerCase(
        "pool_of_slices",
        (Operand((2, 1, 7), "certain"), WEIGHT),
        lambda x, w: pooled(index(convolve(x, w), (..., slice(1, None, 2))), 2),
        lambda x, w: plain_pool(F.conv1d(x, w)[..., 1::2], 2),
    ),
    LayerCase(
        "sum_of_positions",
        (Operand((2, 1, 4), "certain"), WEIGHT),
        lambda x, w: reduce_sum(convolve(x, w, stride=1), [2]),
        lambda x, w: F.conv1d(x, w).sum(-1),
    ),
    LayerCase(
        "sum_of_positions_and_batch",
        (Operand((2, 1, 4), "certain"), WEIGHT),
        lambda x, w: reduce_sum(convolve(x, w), [0, 2]),
        lambda x, w: F.conv1d(x, w).sum((0, 2)),
        batched=(),
    ),
    LayerCase(
        "pool_of_features",
        (VECTOR,),
        lambda x: pooled(x, 2, 1, rank=2),
        lambda x: plain_pool(x[None], 2)[0],
    ),
    LayerCase("pad", (NOISY,), padded_ends, plain_padded_ends),
    LayerCase(
        "pad_and_pool",
        (Operand((2, 1, 4), "certain"), WEIGHT),
        lambda x, w: pooled(padded_ends(convolve(x, w)), 3, 2),
        lambda x, w: plain_pool(plain_padded_ends(F.conv1d(x, w)), 3, 2),
    ),
    LayerCase(
        "crop_of_features",
        (VECTOR,),
        lambda x: pad(x, padded, [(0, 0, 0), (-1, -1, 0)]),
        lambda x: x[:, 1:-1],
    ),
]

# Their oracle is a sample: tests/numpyro/elbo/test_convolutional_networks.py.
EXTREMES = [
    LayerCase(
        "window_maximum",
        (PAIR,),
        lambda x: window_maximum(x, over_last(2, 1, 2)).gaussian(),
        lambda x: x.amax(-1, keepdim=True),
    ),
    LayerCase(
        "axis_maximum",
        (Operand((2, 5), "correlated"),),
        lambda x: axis_maximum(x, 1).gaussian(),
        lambda x: x.amax(-1),
    ),
    LayerCase(
        "window_minimum_diagonal",
        (Operand((2, 3)),),
        lambda x: window_minimum(
            pad(x, padded, [(0, 0, 0), (1, 1, 0)]), over_last(3, 2, 2), [(0, 0), (1, 1)]
        ).gaussian(),
        lambda x: torch.stack([x[:, :2].amin(-1), x[:, 1:].amin(-1)], -1),
        propagation=DIAGONAL,
    ),
]
