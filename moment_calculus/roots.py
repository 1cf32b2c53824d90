"""Functions of affine images of one Gaussian, seen as functions of that Gaussian itself.

``h * sigmoid(1.7 * h)`` and ``exp(-h * h)`` are functions of h alone: so they are integrated once,
and not as if 1.7 h were another variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.activations import Integrated, activation
from moment_calculus.deferred import (
    AffineDeferred,
    ComposedDeferred,
    Deferred,
    FusedDeferred,
    base_of,
    root_of,
)
from moment_calculus.gaussian import Gaussian
from moment_calculus.unary import scale_shift

Value = Gaussian | Deferred


def fused(
    combine: Callable,
    left: Value,
    right: Value,
    *,
    matched: Callable[[Gaussian], Gaussian] | None = None,
) -> FusedDeferred:
    """Combine two functions of one Gaussian to one.

    Args:
        combine: elementwise function of two arrays.
        left: value that :func:`of_one_gaussian` finds to be a function of the same Gaussian.
        right: as the right one.
        matched: computes the moments of the result, where there is a closed form.
    """
    if base_of(left) is not base_of(right):
        left, right = _on_root(left), _on_root(right)
    return FusedDeferred(combine, left, right, Integrated, matched)


def of_one_gaussian(left: Value, right: Value, *, product: bool = False) -> bool:
    """Whether two operands are functions of one Gaussian whose joint moments need their fusion.

    A sum of affine images, or of multiples of the same function, is exact without it.

    Args:
        left: a value.
        right: another.
        product: whether they are multiplied, not added.
    """
    if left.shape != right.shape or _root(base_of(left)) is not _root(base_of(right)):
        return False
    if product:
        return True
    return len({_function(value) for value in (left, right) if isinstance(value, Deferred)}) == 2


def _function(value: Deferred) -> tuple[int, Any]:
    return id(value.base), root_of(value).activation


def _root(value: Gaussian) -> Gaussian:
    while value.affine is not None:
        value = value.affine[0]
    return value


def _on_root(value: Value) -> Any:
    """The same function, of the root of its base."""
    base = base_of(value)
    if base.affine is None:
        return value
    inner = _image(base)
    if isinstance(value, Gaussian):
        return inner
    if isinstance(value, AffineDeferred):
        return AffineDeferred(_on_root(value.source), value.scale, value.shift, value.match)
    return ComposedDeferred(value.activation, inner, Integrated)


def _image(value: Gaussian) -> Any:
    """An affine image as a function of its root."""
    if value.affine is None:
        return Deferred(value, activation("identity"))
    source, scale, shift = value.affine
    return scale_shift(_image(source), scale, shift)
