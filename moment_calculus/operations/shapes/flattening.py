"""Arrays of dependent elements, traced back to the vectors that they were made from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from moment_calculus.functions.combinators import with_arrays_moved
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.features import index_features
from moment_calculus.operations.shapes.moves import Permuted
from moment_calculus.operations.shapes.reshape_steps import Reshaped
from moment_calculus.values import Gaussian
from moment_calculus.values.affine import affine
from moment_calculus.values.applied import apply_activation


def flattened(value: Gaussian) -> Gaussian | None:
    """Return all elements of an array on one axis, row by row, with their covariance.

    The array must come from a vector by reshapes, permutations, affine maps and functions
    of each element; for other values the result is None.
    """
    values = value.memo.values
    if "flattened" not in values:
        known = _flattened(value)
        if known is None:
            return None
        values["flattened"] = known
    return values["flattened"]


def _flattened(value: Gaussian) -> Gaussian | None:
    if len(value.shape) == 1:
        return value if value.axis == -1 else None
    step = value.step
    known = step.affine is not None or step.function is not None
    if not (known or isinstance(step, Reshaped | Permuted)):
        return None
    source = step.inputs[0] if step.function is None else step.function[0]
    vector = flattened(source)
    if vector is None or isinstance(step, Reshaped):
        return vector
    if isinstance(step, Permuted):
        return _permuted(vector, step)
    if step.function is not None:
        return _image(vector, step.function[1], value.shape)
    assert step.affine is not None
    scale, shift = (_like_vector(part, value.shape) for part in step.affine[1:])
    return affine(vector, scale, shift)


def _permuted(vector: Gaussian, step: Permuted) -> Gaussian:
    shape = step.source.shape
    numbers = step.move(np.arange(math.prod(shape)).reshape(shape)).reshape(-1)
    return index_features(vector, numbers, distinct=True)


def _image(vector: Gaussian, function: Any, shape: tuple[int, ...]) -> Gaussian:
    return apply_activation(
        vector, with_arrays_moved(function, lambda part: _like_vector(part, shape), shape)
    )


def _like_vector(part: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(part, int | float):
        return part
    xp = namespace(part)
    return xp.reshape(xp.broadcast_to(part, shape), (-1,))
