"""Recognition of normalisations (α x + β M₁)·(a M₂ + b M₁² + e)^(−½), centred or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.operations.elementwise.arithmetic import multiply, scale_shift
from moment_calculus.operations.normalised import normalisation
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.recognition.base import GroupPart, Reduction, View
from moment_calculus.recognition.dispersion import raise_unrecognised
from moment_calculus.recognition.features import ROUNDING, Centred, Quadratic, is_number, is_own
from moment_calculus.recognition.rules import Certain, recognition_rule, resolved
from moment_calculus.values import Gaussian


class Root(GroupPart):
    """The power ½ or −½ of a quadratic, times a gain; on its own it has no moments."""

    def __init__(self, quadratic: Quadratic | Root, power: float, gain: Any = None) -> None:
        super().__init__(quadratic.reduction, quadratic)
        self.coefficients: tuple[float, float, Any] = quadratic.coefficients
        self.power, self.gain = power, gain
        if gain is not None:
            self.shape = np.broadcast_shapes(self.shape, tuple(gain.shape))
            self._index = lambda: np.broadcast_to(quadratic.index, self.shape)
        self.set_fallback(lambda: raise_unrecognised(self.sites))

    def moved(self, move: Any, plain: Any) -> Any:
        """Return the part after a shape operation; None with a gain, which is not moved."""
        return super().moved(move, plain) if self.gain is None else None


@recognition_rule("sqrt", Quadratic)
def _sqrt(quadratic: Quadratic) -> Root | None:
    return _root(quadratic, 0.5)


@recognition_rule("rsqrt", Quadratic)
def _rsqrt(quadratic: Quadratic) -> Root | None:
    return _root(quadratic, -0.5)


def _root(quadratic: Quadratic, power: float) -> Root | None:
    """Return the root of a quadratic with M₂; without it, it is a function of the mean."""
    return Root(quadratic, power) if quadratic.coefficients[0] else None


@recognition_rule("reciprocal", Root)
def _reciprocal(root: Root) -> Any:
    return Root(root, -root.power) if root.gain is None else None


@recognition_rule("multiply", View, Root, commutes=True)
@recognition_rule("multiply", Centred, Root, commutes=True)
def _normalised_by_product(features: View | Centred, root: Root) -> Any:
    done = _normalised(features, root) if root.power < 0 else None
    return _with_gain(root, features) if done is None else done


@recognition_rule("divide", View, Root)
@recognition_rule("divide", Centred, Root)
def _normalised_by_quotient(features: View | Centred, root: Root) -> Any:
    if root.power < 0 or root.gain is not None:
        return None
    inverse = Root(root, -0.5)
    done = _normalised(features, inverse)
    return _with_gain(inverse, features) if done is None else done


@recognition_rule("multiply", Root, Certain, commutes=True)
def _gained(root: Root, gain: Any) -> Any:
    return _with_gain(root, np.asarray(gain) if is_number(gain) else gain)


@recognition_rule("divide", Certain, Root)
def _gained_by_quotient(gain: Any, root: Root) -> Any:
    inverse = _reciprocal(root)
    return None if inverse is None else _gained(inverse, gain)


def _with_gain(root: Root, gain: Any) -> Any:
    return Root(root, root.power, resolved(gain)) if root.gain is None else None


def _normalised(features: View | Centred, root: Root) -> Any:
    alpha, beta = getattr(features, "alpha", 1.0), getattr(features, "beta", 0.0)
    centred = _is_centred(alpha, beta, root)
    if centred is None or not _is_own_centred(features, root):
        return None
    a, _, e = root.coefficients
    result = _over_groups(
        features.view,
        root.reduction,
        lambda value: normalisation.normalise(value, eps=e / a, centred=centred),
    )
    factor = alpha / a**0.5
    if result is None or root.gain is None:
        return result if result is None or factor == 1 else scale_shift(result, factor)
    return multiply(result if factor == 1 else scale_shift(result, factor), root.gain)


def _is_own_centred(features: View | Centred, root: Root) -> bool:
    centre = getattr(features, "reduction", None)
    return is_own(features.view, root) and (centre is None or root.reduction.same(centre))


def _is_centred(alpha: float, beta: float, root: Root) -> bool | None:
    """Whether the mean is removed (True) or not (False), consistently; None if neither holds."""
    a, b, e = root.coefficients
    if not a > 0 or (is_number(e) and e < 0):
        return None
    if abs(a + b) <= ROUNDING * a and abs(alpha + beta) <= ROUNDING * abs(alpha):
        return True
    return False if b == beta == 0 else None


def _over_groups(
    view: View, reduction: Reduction, function: Callable[[Any], Gaussian]
) -> Gaussian | None:
    """Apply a function of trailing features to the groups of a view, in any layout."""
    axes = reduction.axes_in(view)
    if axes is not None:
        return _over_axes(view, axes, function)
    whole = reduction.view
    if view.index.size != whole.index.size:
        return None
    if not np.array_equal(whole.index.reshape(view.shape), view.index):
        return None
    return reshape(_over_axes(whole, reduction.axes, function), view.shape)


def _over_axes(view: View, axes: tuple[int, ...], function: Callable[[Any], Gaussian]) -> Gaussian:
    order = [axis for axis in range(len(view.shape)) if axis not in axes] + list(axes)
    moved = tuple(view.shape[axis] for axis in order)
    lead, size = moved[: len(moved) - len(axes)], math.prod(view.shape[axis] for axis in axes)
    value = permute(view.value().gaussian(), order)
    result = function(reshape(value, (*lead, size)))
    return permute(reshape(result, moved), [order.index(axis) for axis in range(len(order))])
