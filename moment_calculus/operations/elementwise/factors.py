"""What a value is made of: factors, and functions of several Gaussians, element by element.

A sum of positive functions of different Gaussians has the moments of a Gaussian, which takes
negative values. It remembers its terms: powers, logarithms and ratios of the sum, and
likelihoods that it is a parameter of, are integrated over the Gaussians behind them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.combinators import Bounds, Scaled, not_negative, value_range
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.sums import Sum
from moment_calculus.operations.elementwise.unary import is_value, scale_shift, shape_of
from moment_calculus.operations.shapes.moves import Moved, is_same
from moment_calculus.operations.shapes.reshaping import broadcast, narrow
from moment_calculus.values import Deferred, Gaussian, Value, elementwise_covariance
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.deferred import as_function, base_of
from moment_calculus.values.protocols import MapStep
from moment_calculus.values.spread import broadcast_shape, overlap
from moment_calculus.values.step import Product, Step

NESTED = "nested products"  # key of the memo of a value


def is_linear(value: Gaussian) -> bool:
    """Whether a value is a linear map of latent sites, or of the user's own inputs."""
    return not any(_is_curved(ancestor) for ancestor in ancestors(value))


def _is_curved(value: Gaussian) -> bool:
    """Whether a value is linear in none of its inputs, as a softmax of logits."""
    step = value.step
    return step.nonlinear or 0 < len(step.inputs) == len(step.factors(value))


def repeats_a_factor(first: Gaussian, second: Gaussian) -> bool:
    """Whether one factor was made by products with a value like the other factor."""
    if not overlap(first, second):
        return False
    return _comes_from(first, second) or _comes_from(second, first)


def _comes_from(value: Gaussian, factor: Gaussian) -> bool:
    before_maps = lambda part, _: not part.step.assumes_independence  # noqa: E731
    return any(
        _alike(part, factor)
        for ancestor in ancestors(value, before_maps)
        if isinstance(ancestor.step, Product)
        for part in ancestor.step.inputs
    )


def _alike(first: Gaussian, second: Gaussian) -> bool:
    """Whether two values depend on the same sites and are known to be correlated."""
    if first.sites != second.sites or first.shape != second.shape:
        return False
    covariance = elementwise_covariance(first, second)
    return covariance is not None and value_range(covariance) not in (None, (0.0, 0.0))


def refuse_many_products(first: Gaussian, second: Gaussian) -> None:
    """Raise UnsupportedMoments for factors that are products of products, where few are wanted."""
    most = first.propagation.nested_products
    if math.isinf(most) or not overlap(first, second):
        return
    if max(map(_nested_products, (first, second))) >= most:
        raise UnsupportedMoments(
            f"{most} products of dependent values, each of the one before, have the moments of "
            "jointly Gaussian factors, an approximation; a further one is left to held draws",
            sites=first.sites | second.sites,
            remedy="leave out held draws",
        )


def refuse_matched(first: Any, second: Any) -> None:
    """Raise UnsupportedMoments for a choice between values that are not Gaussian, beside draws.

    Its moments are those of jointly Gaussian operands, which may have a loss without a bound where
    these have long tails, as densities with a random scale.
    """
    values = [part for part in (first, second) if is_value(part)]
    if len(values) < 2 or math.isinf(first.propagation.nested_products):
        return
    if base_of(first) is base_of(second):
        return
    if all(isinstance(part, Gaussian) and is_linear(part) for part in values):
        return
    raise UnsupportedMoments(
        "the larger of two values that are not Gaussian, or the logarithm of the sum of their "
        "exponentials, has the moments of Gaussian ones, which is left to held draws",
        sites=first.sites | second.sites,
        remedy="leave out held draws",
    )


def _nested_products(value: Gaussian) -> int:
    """Return how many products of dependent values, each of the one before, lead to a value."""
    for part in sorted(ancestors(value, _is_not_counted), key=lambda part: part.serial):
        counts = [source.memo.arrays[NESTED] for source in part.step.inputs]
        part.memo.arrays[NESTED] = max(counts, default=0) + _is_dependent_product(part.step)
    return value.memo.arrays[NESTED]


def _is_not_counted(value: Gaussian, input_index: int) -> bool:
    return NESTED not in value.step.inputs[input_index].memo.arrays


def _is_dependent_product(step: Step) -> bool:
    return isinstance(step, Product) and bool(overlap(*step.inputs))


def is_positive(value: Any) -> bool:
    """Whether a value is known to be positive, and its reciprocal to have moments."""
    return isinstance(value, Deferred) and value.bounds.positive


def assume_positive(value: Any) -> Any:
    """Return a function with its traced arrays taken as positive: NaN where they are negative."""
    if not isinstance(value, Deferred) or not isinstance(value.function, Scaled):
        return value
    assumed = value.of(value.function.assuming_positive())
    return assumed if is_positive(assumed) and not is_positive(value) else value


def factors_of(value: Any) -> list[Value] | None:
    """Return the functions of Gaussians whose product a value is; None for other values."""
    function = as_function(value)
    if isinstance(function, Deferred):
        return [function]
    if isinstance(value.step, Product):
        left, right = map(factors_of, value.step.inputs)
        return left + right if left and right else None
    step = value.step
    if step.affine is not None:
        source, scale, shift = step.affine
        first, *others = factors_of(source) or (None,)
        plain = not others or (isinstance(shift, int | float) and shift == 0)
        return [scale_shift(first, scale, shift), *others] if first and plain else None
    if not isinstance(step, Moved) or step.combines_elements or step.adds_elements:
        return None
    parts = factors_of(step.source)
    return None if parts is None else [step.apply_to(part, value) for part in parts]


def several_factors(value: Any) -> list[Value] | None:
    """Return the functions of Gaussians of which a value is the product; None if not several."""
    factors = factors_of(value) if isinstance(value, Gaussian) else None
    return [assume_positive(factor) for factor in factors] if factors and factors[1:] else None


def positive_factors(value: Any) -> list[Value] | None:
    """Return the factors of a product of several functions that are not negative; else None.

    The product as a value is matched by a Gaussian, which takes negative values.
    """
    factors = several_factors(value)
    known = factors and all(isinstance(f, Deferred) and f.bounds.low >= 0 for f in factors)
    return factors if known else None


# ----------------------------------------------------------------------------------------
# Functions of several Gaussians


POSITIVE_SUM = "positive sum"  # key of the memo of a value, as is
MUST_BE_POSITIVE = "must be positive"  # key of the memo of a value
DEPTH = 12  # steps that are traced back, of a value that may be a function of several Gaussians


@dataclass(frozen=True, eq=False)
class Joint:
    """An elementwise function of several parts: of values, arrays and other such functions."""

    combine: Callable[..., Array]  # of the parts' numbers; with a name, so that it pickles
    parts: tuple[Any, ...]
    bounds: Bounds

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape that the parts broadcast to."""
        return broadcast_shape(*map(shape_of, self.parts), ())

    def rebuilt(self, change: Callable[[Any], Any]) -> Joint:
        """Return the same function of other values and arrays."""
        parts = (p.rebuilt(change) if isinstance(p, Joint) else change(p) for p in self.parts)
        return Joint(self.combine, tuple(parts), self.bounds)

    def leaves(self) -> list[Any]:
        """Return the values and arrays of which it is a function."""
        nested = (part.leaves() if isinstance(part, Joint) else [part] for part in self.parts)
        return [leaf for leaves in nested for leaf in leaves]

    @property
    def assumes_signs(self) -> bool:
        """Whether its bounds hold only where traced arrays are not negative."""
        if self.combine is scaled_and_shifted and None in map(value_range, self.parts[1:]):
            return True
        return any(
            part.assumes_signs if isinstance(part, Joint) else _assumes_signs(part)
            for part in self.parts
        )


class FunctionOfSeveral(Step):
    """Base step of a value that may be a function of several Gaussians, element by element."""

    joint: Joint | None


def _stated_joint(step: Step) -> Joint | None:
    return step.joint if isinstance(step, FunctionOfSeveral) else None


def _assumes_signs(factor: Any) -> bool:
    function = factor.function if isinstance(factor, Deferred) else None
    while isinstance(function, Scaled):
        if function.traced_are_positive:
            return True
        function = function.inner
    return False


def total(*terms: Array) -> Array:
    """Return the sum of arrays."""
    return sum(terms[1:], start=terms[0])


def terms_of(function: Any) -> list[Any]:
    """Return the terms of a sum of functions, or the part itself."""
    if isinstance(function, Joint) and function.combine in (operator.add, total):
        return [term for inner in function.parts for term in terms_of(inner)]
    return [function]


def scaled_and_shifted(x: Array, scale: Any, shift: Any) -> Array:
    """Return scale · x + shift, NaN where traced parts are negative."""
    return x * not_negative(scale) + not_negative(shift)


def joint_of(value: Any, depth: int = DEPTH) -> Any:
    """Return a value as a function of several Gaussians, or as a function of one, or itself."""
    function = as_function(value)
    if isinstance(function, Deferred):
        return assume_positive(function)
    step = value.step
    if (known := _stated_joint(step) or _positive_sum(value)) is not None:
        return known
    if not depth:
        return value
    if isinstance(step, Product | Sum):
        return _sum_or_product(value, [joint_of(part, depth - 1) for part in step.inputs])
    moved = isinstance(step, Moved) and not (step.combines_elements or step.adds_elements)
    if not moved and step.affine is None:
        return value
    inner = joint_of(step.inputs[0], depth - 1)
    if moved:
        change = lambda leaf: _moved(step, leaf, value)  # noqa: E731
        return inner.rebuilt(change) if isinstance(inner, Joint) else change(inner)
    _, scale, shift = step.affine
    if not isinstance(inner, Joint):
        return assume_positive(scale_shift(inner, scale, shift))
    bounds = inner.bounds.affine(scale, shift, traced_are_positive=True)
    return Joint(scaled_and_shifted, (inner, scale, shift), bounds)


def _positive_sum(value: Gaussian) -> Any:
    known, step = value.memo.arrays, value.step
    if isinstance(step, MapStep) and POSITIVE_SUM not in known:
        known[POSITIVE_SUM] = step.positive_sum(value)
    return known.get(POSITIVE_SUM)


def _sum_or_product(value: Gaussian, functions: list[Any]) -> Any:
    """Return the sum or product of functions; of Gaussians alone the value itself."""
    if not any(isinstance(function, Joint | Deferred) for function in functions):
        return value
    first, second = map(bounds_of_part, functions)
    if isinstance(value.step, Sum):
        bounds = first.plus(second)
        if _is_share_of_rest(*functions) or _is_share_of_rest(*reversed(functions)):
            bounds = Bounds(bounds.low, 1.0, bounds.open_ended)
        return Joint(operator.add, tuple(functions), bounds)
    return Joint(operator.mul, tuple(functions), _bounds_of_product(first, second))


def _is_share_of_rest(share: Any, function: Any) -> bool:
    """Whether a part is (1 − p) r for a share p in [0, 1], and r at most one."""
    if not isinstance(function, Joint) or function.combine is not operator.mul:
        return False
    ends = bounds_of_part(share)
    if ends.low < 0 or ends.high > 1:
        return False
    first, second = function.parts
    pairs = (first, second), (second, first)
    return any(is_complement(share, p) and bounds_of_part(r).high <= 1 for p, r in pairs)


def is_complement(first: Any, second: Any) -> bool:
    """Whether two values are p and 1 − p, functions of the same Gaussian."""
    if not (is_value(first) and is_value(second)):
        return False
    first, second = as_function(first), as_function(second)
    if not (isinstance(first, Deferred) and isinstance(second, Deferred)):
        return False
    (inner, scale, shift), (other, factor, offset) = map(
        affine_parts, (first.function, second.function)
    )
    numbers = all(isinstance(part, int | float) for part in (scale, shift, factor, offset))
    same = is_same(narrow(first.base), narrow(second.base)) and inner == other
    return numbers and same and (scale + factor, shift + offset) == (0, 1)


def affine_parts(function: Any) -> tuple[Any, Any, Any]:
    """Return f, a and b of a function a f + b."""
    scale, shift = 1.0, 0.0
    while isinstance(function, Scaled):
        scale, shift = scale * function.scale, shift + scale * function.shift
        function = function.inner
    return function, scale, shift


def _moved(step: Moved, leaf: Any, like: Gaussian) -> Any:
    if isinstance(leaf, int | float):
        return leaf
    shape = step.source.shape
    if is_value(leaf):
        return step.apply_to(broadcast(leaf, shape), like)
    return step.move(namespace(leaf).broadcast_to(leaf, shape))


def bounds_of_part(part: Any) -> Bounds:
    """Return the bounds of a part of a joint function; those of a Gaussian are infinite."""
    if isinstance(part, Joint | Deferred):
        return part.bounds
    known = None if is_value(part) else value_range(part)
    return Bounds() if known is None else Bounds(*known)


def _bounds_of_product(first: Bounds, second: Bounds) -> Bounds:
    if min(first.low, second.low) < 0:
        return Bounds()
    high = 0.0 if 0 in (first.high, second.high) else first.high * second.high
    return Bounds(first.low * second.low, high, first.positive and second.positive)


def positive_joint(value: Any, *, several: bool = True) -> Joint | None:
    """Return a Gaussian as a positive function of several Gaussians; None if it is no such.

    With ``several`` left out, a function of one Gaussian is such a function too.
    """
    if several and not isinstance(value, Gaussian):
        return None
    joint = joint_of(value)
    if not several and isinstance(joint, Deferred):
        joint = Joint(operator.pos, (joint,), joint.bounds)
    if not isinstance(joint, Joint) or not joint.bounds.positive:
        return None
    if isinstance(value, Gaussian):
        value.memo.arrays[MUST_BE_POSITIVE] = True
    return joint


def joint_parameter(value: Any) -> Joint | None:
    """Return what is integrated over several Gaussians where a likelihood has it as parameter.

    Sums and products that may have either sign are taken as Gaussian.
    """
    if not isinstance(value, Gaussian):
        return None
    joint, source = joint_of(value), value
    if not isinstance(joint, Joint):
        return None
    has_sign = joint.bounds.positive or joint.bounds.affine(-1.0, 0.0).positive
    if has_sign and (not joint.assumes_signs or _must_be_positive(value)):
        return joint
    while source.step.affine is not None or isinstance(source.step, Moved):
        source = source.step.inputs[0]
    return joint if _stated_joint(source.step) is not None else None


def _must_be_positive(value: Gaussian) -> bool:
    """Whether something asked for a value, before it was moved, that only takes positive ones."""
    while MUST_BE_POSITIVE not in value.memo.arrays:
        if not isinstance(value.step, Moved):
            return False
        value = value.step.source
    return True


def has_infinite_exponential(value: Gaussian, depth: int = DEPTH) -> bool:
    """Whether E exp(x) is infinite: x has a product of a Gaussian and an exponential of another.

    Only factors are computed anew, since every evaluation asks.
    """
    step = value.step
    if not depth or step.function is not None:
        return False
    if (stated := _stated_joint(step)) is not None:
        return _has_heavy_product(stated)
    if isinstance(step, Product):
        found = _sum_or_product(value, [joint_of(part, depth - 1) for part in step.inputs])
        return isinstance(found, Joint) and _has_heavy_product(found)
    moved = isinstance(step, Moved) and not (step.combines_elements or step.adds_elements)
    follows = moved or isinstance(step, Sum) or step.affine is not None
    return follows and any([has_infinite_exponential(part, depth - 1) for part in step.inputs])


def _has_heavy_product(joint: Joint) -> bool:
    if joint.combine is operator.mul and any(isinstance(part, Gaussian) for part in joint.parts):
        return any(_is_exponential(part) for part in joint.parts)
    return any(_has_heavy_product(part) for part in joint.parts if isinstance(part, Joint))


def _is_exponential(function: Any) -> bool:
    return (
        isinstance(function, Deferred)
        and function.bounds.positive
        and function.function.superlinear
    )


def ratio_bounds(part: Any, whole: Joint) -> Bounds:
    """Return the bounds of part / whole, for a positive sum of which it may be a term."""
    bounds = bounds_of_part(part)
    if bounds.positive and _is_term(part, whole):
        return Bounds(0.0, 1.0, True)
    return Bounds(0.0, open_ended=True) if bounds.positive else Bounds()


def _is_term(function: Any, whole: Any) -> bool:
    if isinstance(whole, Joint) and whole.combine in (operator.add, total):
        positive = all(bounds_of_part(term).low >= 0 for term in whole.parts)
        return positive and any(_is_term(function, term) for term in whole.parts)
    if not (isinstance(function, Deferred) and isinstance(whole, Deferred)):
        return function is whole
    same = is_same(narrow(function.base), narrow(whole.base))
    return same and _is_same(function.recognised_function, whole.recognised_function)


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, Scaled) and isinstance(second, Scaled):
        pairs = (first.scale, second.scale), (first.shift, second.shift)
        same = (a is b or (isinstance(a, int | float) and a == b) for a, b in pairs)
        return all(same) and _is_same(first.inner, second.inner)
    return first is second or first == second
