"""Two operands of a sum or product, side by side: their shape, feature axis and dependence."""

from __future__ import annotations

from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.ancestry import is_rearranged
from moment_calculus.values.layout import broadcast_shape
from moment_calculus.values.support import overlap


def aligned(left: Gaussian, right: Gaussian) -> tuple[Gaussian, Gaussian, int | None]:
    """Broadcast two values to one shape and one feature axis.

    Args:
        left: a value.
        right: another one.

    Returns:
        Both on that axis, and the axis: that of the value with all axes, of two such values the
        one whose components are dependent.
    """
    shape = broadcast_shape(left.shape, right.shape)
    wide, narrow = (left, right) if len(left.shape) == len(shape) else (right, left)
    if len(narrow.shape) == len(shape) and wide.independent and not narrow.independent:
        wide, narrow = narrow, wide
    axis = narrow.axis if wide.axis is None else wide.axis
    return broadcast(left, shape, axis), broadcast(right, shape, axis), axis


def is_dense(left: Gaussian, right: Gaussian, shared: bool) -> bool:
    """Whether a sum or product has dependent components whose covariance is to be carried.

    In diagonal mode some values carry one (a softmax, a chain), unless what they meet has left its
    own out already.

    Args:
        left: a value.
        right: a value aligned with it.
        shared: whether they depend on each other.
    """
    if left.has_covariance or right.has_covariance:
        return left.propagation.full or not (_has_dropped(left) or _has_dropped(right))
    if left.axis is None:
        return False  # scalars: their variance is all there is
    return shared and left.propagation.full and left.origin is not right.origin


def _has_dropped(value: Gaussian) -> bool:
    return not (value.has_covariance or value.independent)


def is_of_one(left: Gaussian, right: Gaussian) -> bool:
    """Whether two aligned values are functions of one value, component by component.

    Args:
        left: a value.
        right: another one.
    """
    return left.origin is right.origin


def ties_of(left: Gaussian, right: Gaussian) -> Ties:
    """What is tied to what in a sum or product.

    The elements of the batch are apart if the dependent ones are aligned, element by element: not
    in the difference of neighbours.

    Args:
        left: a value.
        right: a value aligned with it.
    """
    unrelated = is_of_one(left, right) or not overlap(left, right)
    if left.independent and right.independent and unrelated:
        return Ties.NONE
    apart = left.apart and right.apart and not is_rearranged(left, right)
    return Ties.FEATURES if apart else Ties.ALL
