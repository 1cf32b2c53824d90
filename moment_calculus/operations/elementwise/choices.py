"""Choices between operands: by a certain mask, of the larger one, or by a random condition.

``where(h > 0, h, 0.1 * h)`` is a function of h with a corner at zero. A condition is
stored as the number 0 or 1 that it stands for, with the levels at which it changes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.combinators import Bounds, value_range
from moment_calculus.functions.common_argument import as_composition
from moment_calculus.functions.recognition import RecognitionPolicy
from moment_calculus.functions.table import IntegratedWithInverse, ReLU, activation
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.factors import refuse_matched
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import (
    apply,
    are_of_one_gaussian,
    fuse_functions,
    is_value,
    scale_shift,
)
from moment_calculus.operations.shapes.concatenation import on_features
from moment_calculus.values import Deferred, Gaussian, Spread, Value
from moment_calculus.values.ancestry import Branches, combine_branches
from moment_calculus.values.deferred import Composite, base_of
from moment_calculus.values.propagation import register_replaceable
from moment_calculus.values.protocols import Switched
from moment_calculus.values.spread import broadcast_shape, none_or_all

__all__ = [
    "OPERATORS",
    "Condition",
    "at_least",
    "at_most",
    "compare",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "pick_components",
    "prelu",
    "same_function",
    "sign",
    "where",
    "where_condition",
]


def where(mask: Array, chosen: Any, other: Any) -> Value:
    """Return ``chosen`` where a certain mask is set and ``other`` elsewhere, exactly.

    Certain infinities are kept. If both are random, share a latent site and their joint
    moments are unknown, full covariances raise UnsupportedMoments, and the diagonal mode
    warns.
    """
    if hasattr(mask, "sites"):
        raise UnsupportedMoments(
            "a choice that depends on a random value",
            sites=mask.sites,
            remedy="choose by a certain mask, or use an activation such as relu" + OR_DRAW,
        )
    if not is_value(chosen):
        return _filled(mask, other, chosen)
    if not is_value(other):
        return _filled(~mask, chosen, other)
    return add(_filled(~mask, chosen, 0.0), _filled(mask, other, 0.0))


def pick_components(select: Callable[..., Array], alternatives: Sequence[Any]) -> Value:
    """Return the components that ``select`` picks from values and arrays of one shape, exactly."""
    if same_function(alternatives):
        base = pick_components(select, [part.base for part in alternatives]).gaussian()
        return Deferred(base, alternatives[0].function)
    live = [part.gaussian() for part in alternatives if is_value(part)]
    # On different feature axes the covariances are dropped, with a warning.
    axis = live[0].axis if len({part.axis for part in live}) == 1 else -1
    parts = [on_features(part, axis, live[0].propagation) for part in alternatives]
    step = _Chosen(tuple(parts), select)
    dense = any(part.has_covariance for part in parts)
    variance = select(*(part.variance for part in parts))
    return Gaussian(
        select(*(part.mean for part in parts)),
        Spread(variance, step.covariance, dense),
        step,
        axis=axis,
        ties=none_or_all(all(part.independent for part in parts)),
        propagation=live[0].propagation,
    )


@dataclass(frozen=True, eq=False)
class _Chosen(Switched):
    """Step of :func:`choose`: each component comes from one of several alternatives."""

    inputs: tuple[Gaussian, ...] = field()
    select: Callable[..., Array]  # picks from as many means, variances or covariances

    def covariance(self) -> Array:
        return self.select(*(part.joint_covariance() for part in self.inputs))

    def branches(self, value: Gaussian, input_branches: Any) -> Branches | None:
        return combine_branches(self.inputs, input_branches, self._again)

    def _again(self, *alternatives: Any) -> Any:
        random = any(is_value(part) for part in alternatives)
        return pick_components(self.select, alternatives) if random else self.select(*alternatives)

    def through(self, input_index: int, cross: Array) -> Array:
        """Keep the covariance of one alternative where it is chosen; zero elsewhere."""
        zeros = namespace(cross).zeros_like(cross)
        return self.select(*(cross if i == input_index else zeros for i in range(len(self.inputs))))

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis != value.axis else None


def same_function(values: Sequence[Any]) -> bool:
    """Whether all values are the same plain function, each of a Gaussian of its own."""
    if not all(isinstance(part, Deferred) and part.is_single_activation for part in values):
        return False
    return all(part.function == values[0].function for part in values)


def _filled(mask: Array, value: Value, filling: Any) -> Value:
    """Replace the components where the mask is set by a certain filling."""
    xp = namespace(mask)
    like = value.at_mean
    one, zero = xp.ones_like(like[(0,) * like.ndim]), xp.zeros_like(like[(0,) * like.ndim])
    shift = filling if hasattr(filling, "shape") else zero + filling
    result = scale_shift(value, xp.where(mask, zero, one), xp.where(mask, shift, zero))
    is_log_zero = isinstance(filling, int | float) and filling == -math.inf
    return _with_log_zeros(result) if is_log_zero else result


def _with_log_zeros(value: Any) -> Any:
    """Note of a new affine function that some elements are −∞, which a traced shift hides."""
    if isinstance(value, Gaussian):
        step: Any = value.step
        value.step = replace(step, has_log_zeros=True)
        return value
    source, move = value._derived_from
    value.function = replace(value.function, has_log_zeros=True)
    value._derived_from = source, lambda part: _with_log_zeros(move(part))
    return value


MAXIMUM = register_replaceable("maximum")


def maximum(left: Any, right: Any) -> Value:
    """Return the larger of two operands as y + relu(x − y), exact for jointly Gaussian ones."""
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return at_least(left, right)
    if _is_one_function(left, right):
        return _choose_of_one("gt", left, right)
    if (rule := left.propagation.replacement(MAXIMUM)) is not None:
        return rule(left, right)
    refuse_matched(left, right)
    # Functions of Gaussians enter by their mean, variance and covariance alone.
    # Source: Shekhovtsov et al. 2018, eqs. 32-35, with the covariance of the operands.
    return add(apply(ReLU(), subtract(left, right)), right)


def minimum(left: Any, right: Any) -> Value:
    """Return the smaller of two operands as y − relu(y − x); see :func:`maximum`."""
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return at_most(left, right)
    if _is_one_function(left, right):
        return _choose_of_one("lt", left, right)
    if (rule := left.propagation.replacement(MAXIMUM)) is not None:
        return scale_shift(rule(scale_shift(left, -1.0), scale_shift(right, -1.0)), -1.0)
    refuse_matched(left, right)
    return subtract(right, apply(ReLU(), subtract(right, left)))


def _is_one_function(left: Value, right: Value) -> bool:
    """Whether a choice between two values is a function of one Gaussian that may be recognised."""
    allowed = RecognitionPolicy.of(base_of(left)).allowed
    return allowed and are_of_one_gaussian(left, right, product=True)


def _choose_of_one(kind: str, left: Value, right: Value) -> Value:
    """Choose the left one of two functions of one Gaussian where a comparison holds."""
    condition = compare(kind, left, right)
    return where_condition(condition, left, right) if isinstance(condition, Condition) else left


def prelu(value: Value, slope: Array) -> Value:
    """Return x for x > 0, else slope · x, exactly, as slope · x + (1 − slope) · relu(x)."""
    return add(scale_shift(value, slope), scale_shift(apply(ReLU(), value), 1 - slope))


def at_least(value: Value, low: Any) -> Value:
    """Return the larger of x and a number or broadcastable array: low + relu(x − low)."""
    low = _one_number(low, value)
    if isinstance(low, int | float):
        return apply(activation("relu") if low == 0 else activation("clamp", low=float(low)), value)
    return scale_shift(apply(ReLU(), scale_shift(value, 1.0, -low)), 1.0, low)


def at_most(value: Value, high: Any) -> Value:
    """Return the smaller of x and a number or broadcastable array: high − relu(high − x)."""
    high = _one_number(high, value)
    if isinstance(high, int | float):
        return apply(activation("clamp", high=float(high)), value)
    return scale_shift(apply(ReLU(), scale_shift(value, -1.0, high)), -1.0, high)


def _one_number(array: Any, value: Value) -> Any:
    """Return an array that holds one number everywhere as this number, which is recognised."""
    if isinstance(array, int | float) or not RecognitionPolicy.of(base_of(value)).allowed:
        return array
    known = None if getattr(array, "requires_grad", False) else value_range(array)
    if known is None or known[0] != known[1]:
        return array
    return known[0] if broadcast_shape(value.shape, array.shape) == value.shape else array


OPERATORS: dict[str, Callable] = {
    name: getattr(operator, name) for name in ("gt", "ge", "lt", "le", "eq", "ne")
}
_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}
REMEDY = (
    "compare functions of one latent value with numbers and choose between functions of that "
    "value, use an activation such as relu, or draw the sites by naming them in sample_sites="
)


class Condition(Composite):
    """A boolean function of one Gaussian, stored as its number 0 or 1."""

    __slots__ = ("number",)
    name = "condition"

    def __init__(self, number: Any) -> None:
        super().__init__(number.base)
        self.number: Deferred = number

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the condition."""
        return self.number.shape

    @property
    def at_mean(self) -> Array:
        """The condition at the mean of its Gaussian."""
        return self.number.at_mean > 0.5

    def gaussian(self) -> NoReturn:
        """Raise UnsupportedMoments: a boolean has no moments before it is a number."""
        raise UnsupportedMoments(
            "the outcome of a comparison with a random value is random, and this operation does "
            "not take it",
            sites=self.sites,
            remedy=REMEDY,
        )


def compare(kind: str, left: Any, right: Any) -> Any:
    """Compare two operands, at least one random, by the operator named ``kind``.

    The result is a :class:`Condition`, or certain booleans where the outcome is certain:
    a value equals itself, and a Gaussian equals no number. Two random operands must be
    Gaussians or functions of one Gaussian, and only a Gaussian may be compared with an
    array.
    """
    if not is_value(left):
        kind, left, right = _MIRRORED[kind], right, left
    if left is right:
        return _everywhere(left, OPERATORS[kind](0, 0))
    if is_value(right):
        left, right = _difference(left, right), 0.0
    if not isinstance(right, int | float):
        left, right = _above(left, right), 0.0
    return _with_level(kind, left, float(right))


def _difference(left: Value, right: Value) -> Value:
    if are_of_one_gaussian(left, right, product=True):
        return fuse_functions(operator.sub, left, right)
    if isinstance(left, Gaussian) and isinstance(right, Gaussian):
        return subtract(left, right)
    raise UnsupportedMoments(
        "a comparison of functions of different random values",
        sites=left.sites | right.sites,
        remedy=REMEDY,
    )


def _above(value: Value, level: Array) -> Value:
    """Return x − c for an array c: the change is then at the number 0, and c gets its gradient."""
    if not isinstance(value, Gaussian):
        raise UnsupportedMoments(
            f"a function of a random value is compared with an array of shape {level.shape}",
            sites=value.sites,
            remedy="compare it with a number, or the latent value itself with the array" + OR_DRAW,
        )
    shifted = subtract(value, level)
    if shifted.shape != value.shape:
        raise UnsupportedMoments(
            f"a comparison of shapes {value.shape} and {level.shape}",
            sites=value.sites,
            remedy="broadcast the random value first",
        )
    return shifted


def _with_level(kind: str, value: Value, level: float) -> Any:
    if not math.isfinite(level):
        return _everywhere(value, OPERATORS[kind](0.0, level))
    if isinstance(value, Gaussian) and kind in ("eq", "ne"):
        return _everywhere(value, kind == "ne")
    holds = OPERATORS[kind]
    step = IntegratedWithInverse(
        lambda x: _as_number(holds(x, level), x), (level,), name=kind, bounds=(0.0, 1.0)
    )
    if isinstance(value, Gaussian):
        return Condition(Deferred(value, step))
    return Condition(apply(step, value))


def _everywhere(value: Value, outcome: bool) -> np.ndarray:
    return np.full(value.shape, bool(outcome))


def _as_number(holds: Array, like: Array) -> Array:
    xp = namespace(like)
    return xp.where(holds, xp.ones_like(like), xp.zeros_like(like))


def logical_not(condition: Condition) -> Condition:
    """Return the negation of a condition."""
    return Condition(scale_shift(condition.number, -1.0, 1.0))


def logical_and(left: Any, right: Any) -> Any:
    """Return the conjunction of a condition with another one or with certain booleans."""
    left, right = (left, right) if isinstance(left, Condition) else (right, left)
    if isinstance(right, Condition):
        return _combined(operator.mul, left, right)
    return Condition(scale_shift(left.number, _as_number(right, _example(left.number))))


def logical_or(left: Any, right: Any) -> Any:
    """Return the disjunction of a condition with another one or with certain booleans."""
    parts = (logical_not(p) if isinstance(p, Condition) else ~p for p in (left, right))
    return logical_not(logical_and(*parts))


def logical_xor(left: Any, right: Any) -> Any:
    """Return the exclusive disjunction of a condition with another one or certain booleans."""
    left, right = (left, right) if isinstance(left, Condition) else (right, left)
    if isinstance(right, Condition):
        return _combined(lambda x, y: (x - y) ** 2, left, right)
    flip = _as_number(right, _example(left.number))
    return Condition(scale_shift(left.number, 1 - 2 * flip, flip))


def _combined(combine: Callable, left: Condition, right: Condition) -> Condition:
    _require_one_gaussian(left.number, right.number)
    levels = {id(c.source) for c in (left, right) if _has_array_level(c)}
    if len(levels) > 1:
        raise UnsupportedMoments(
            "a random value is compared with two arrays at once",
            sites=left.sites,
            remedy="compare it with numbers, or use jnp.clip with the arrays for bounds" + OR_DRAW,
        )
    return Condition(
        fuse_functions(combine, left.number, right.number, bounds=lambda: Bounds(0.0, 1.0))
    )


def _has_array_level(condition: Condition) -> bool:
    affine = condition.source.step.affine
    return affine is not None and not isinstance(affine[2], int | float)


def _require_one_gaussian(condition: Value, value: Value) -> None:
    if not are_of_one_gaussian(condition, value, product=True):
        raise UnsupportedMoments(
            "a choice that depends on one random value, between functions of another",
            sites=condition.sites | value.sites,
            remedy=REMEDY,
        )


def _example(value: Deferred) -> Array:
    return value.base.mean


def where_condition(condition: Condition, chosen: Any, other: Any) -> Value:
    """Choose by a condition between functions of its Gaussian, arrays and finite numbers."""
    number = condition.number
    values = [part if is_value(part) else _one_number(part, number) for part in (chosen, other)]
    chosen, other = values
    if not any(map(is_value, values)):
        return scale_shift(number, chosen - other, other)
    parts = [_part(number, value) for value in values]
    choose = lambda one, *both: namespace(one).where(one > 0.5, *both)  # noqa: E731
    whole = fuse_functions(choose, number, *parts, bounds=lambda: _hull(*parts))
    return whole.of(as_composition(whole.function, whole.policy))


def _part(number: Deferred, value: Any) -> Value:
    if is_value(value):
        _require_one_gaussian(number, value)
        return value
    if isinstance(value, int | float) and not math.isfinite(value):
        raise UnsupportedMoments(
            f"a choice by a random value that may be {value}",
            sites=number.sites,
            remedy="choose a finite number: an infinite one leaves no moments",
        )
    return scale_shift(number, 0.0, value)


def _hull(*parts: Value) -> Bounds:
    """Return bounds that hold for each of several values."""
    bounds = [part.bounds if isinstance(part, Deferred) else Bounds() for part in parts]
    low, high = min(b.low for b in bounds), max(b.high for b in bounds)
    ends = [
        (b, (b.low > low or low == -math.inf) and (b.high < high or high == math.inf))
        for b in bounds
    ]
    return Bounds(low, high, all(b.open_ended or inside for b, inside in ends))


def sign(value: Value) -> Value:
    """Return the sign −1, 0 or 1 of a value."""
    positive, negative = (compare(kind, value, 0.0).number for kind in ("gt", "lt"))
    if isinstance(value, Gaussian):
        return scale_shift(apply(activation("heaviside"), value), 2.0, -1.0)
    return fuse_functions(operator.sub, positive, negative, bounds=lambda: Bounds(-1.0, 1.0))
