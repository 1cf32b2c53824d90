"""A batch of dependent scalars as one vector, with the covariance that a contraction needs.

Different elements of a batch are not tied to each other, for there may be many of them: the effects
of a plate that share a mean and a scale. Where they are summed with weights after all, the value is
computed again from its independent components, with the trailing axis as its features.
"""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.operations.elementwise.arithmetic import add, multiply
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.shapes.moves import broadcast, moved
from moment_calculus.values import Gaussian
from moment_calculus.values.covariances import cross_covariance
from moment_calculus.values.layout import identity_map


def as_vector(value: Gaussian) -> Gaussian | None:
    """The value with its trailing axis as feature axis, and the covariance along it.

    Exact where the value is made of independent components and scalars by sums, products and
    functions of each component. What is made of one component twice is made of one vector twice.

    Args:
        value: a batch of scalars, with at least one axis.

    Returns:
        The vector; None where the covariance is not known.
    """
    if value.vector is None:
        value.vector = _made(value)
    return value.vector


def _made(value: Gaussian) -> Gaussian | None:
    if value.axis is not None or not value.shape:
        return value if value.axis == -1 else None
    if value.independent and (value.components is not None or not value.affine):
        return moved(value, lambda a: a, -1, elements=value.elements)  # no parent: no cycle
    if value.trailing is not None:
        return value.trailing()
    if value.function:
        base, activation = value.function
        return _of_parts(lambda part: apply(activation, part), base)
    if value.factors:
        return _of_parts(multiply, *value.factors)
    if value.affine:
        source, scale, shift = value.affine
        return _of_parts(lambda part: scale_shift(part, scale, shift), source)
    return _of_identical(value)


def _of_parts(combine: Callable, *parts: Gaussian) -> Gaussian | None:
    vectors = [as_vector(part) for part in parts]
    if any(vector is None for vector in vectors):
        return None
    result = combine(*vectors)
    return None if result is None else result.gaussian()


def _sum(left: Gaussian, right: Gaussian) -> Gaussian | None:
    return None if cross_covariance(left, right) is None else add(left, right).gaussian()


def _of_identical(value: Gaussian) -> Gaussian | None:
    """A sum, or a value that was repeated along axes of the batch."""
    parents = [parent for parent, jacobian in value.parents if jacobian is identity_map]
    if not parents or len(parents) != len(value.parents):
        return None
    if len(parents) == 2:
        return _of_parts(_sum, *parents)
    (parent,) = parents
    if parent.shape and parent.shape[-1] != 1:
        return _of_parts(lambda part: broadcast(part, value.shape), parent)
    return broadcast(parent, value.shape, -1) if parent.axis is None else None
