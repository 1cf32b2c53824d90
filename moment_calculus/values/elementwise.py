"""Elementwise functions of a Gaussian and their steps: affine maps, and other activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moment_calculus.errors import UnsupportedMoments, current_line
from moment_calculus.functions.base import clipped_correlation
from moment_calculus.functions.combinators import has_arrays, with_arrays_moved
from moment_calculus.functions.derived import Derived, left_out
from moment_calculus.functions.images import image_parts
from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs.mehler import (
    Operand,
    Pairing,
    elementwise_product,
    function_covariance,
)
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    namespace,
    outer,
    safe_scale,
    shrunk,
    transpose,
)
from moment_calculus.numerics.execution import plus_product
from moment_calculus.values.ancestry import from_vector_parts
from moment_calculus.values.backward.narrow import of_functions
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.lags import Along, Pairs, lag_covariance, shifted
from moment_calculus.values.protocols import KnowsLags, Rewritable, Switched
from moment_calculus.values.spread import (
    Spread,
    batch_shape,
    broadcasts,
    features_last,
    from_features_last,
    rows_scaled,
)
from moment_calculus.values.step import Added, OfOneSource


@dataclass(frozen=True, eq=False)
class Affine(OfOneSource, KnowsLags, Rewritable, Switched):
    """The step of scale · x + shift, component by component."""

    scale: Any  # number, or array that broadcasts to the shape of x; so is the shift
    shift: Any
    has_log_zeros: bool = False  # whether the shift is −∞ somewhere
    componentwise = True

    @property
    def affine(self) -> tuple[Gaussian, Any, Any]:  # type: ignore[override]
        """Return x, the scale and the shift."""
        return self.source, self.scale, self.shift

    @cached_property
    def identity(self) -> bool:  # type: ignore[override]
        """Return whether it only shifts."""
        return isinstance(self.scale, int | float) and self.scale == 1

    @cached_property
    def gain(self) -> Array | float:
        """Return the scale: a number, or an array in the shape of x."""
        if isinstance(self.scale, int | float):
            return self.scale
        return namespace(self.source.mean).broadcast_to(self.scale, self.source.shape)

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Return the covariance, scaled; None if the scale and its batch do not broadcast."""
        if isinstance(self.scale, int | float):
            return cross if self.identity else cross * self.scale
        batch = batch_shape(self.source.shape, self.source.axis)
        if not broadcasts(batch, tuple(cross.shape[:-2])):
            return None
        return rows_scaled(cross, self.gain, self.source.axis)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent, scaled."""
        return cotangent if self.identity else cotangent * self.scale

    def covariance(self) -> Array:
        """Return the covariance over the feature axis, ``batch + [d, d]``."""
        # computed from the first of the line on, which may be too long for a recursion
        line = [self.source]
        while line[-1].step.affine is not None and line[-1].spread.is_pending:
            line.append(line[-1].step.affine[0])
        covariance: Array = None
        for value in reversed(line):
            covariance = value.joint_covariance()
        if isinstance(self.scale, int | float):
            return covariance * self.scale**2
        last = features_last(self.gain, self.source.axis)
        return covariance * outer(last, last)

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | float | None:
        """Return what the step of x knows, scaled; None for a function, which is met as such."""
        if self.source.step.nonlinear:
            return None
        covariance = self.source.step.elementwise_covariance_with(self.source, other, query)
        return covariance if covariance is None or self.identity else self.gain * covariance

    def pairs(self, value: Gaussian, pairs: Pairs) -> Array | None:
        """Return the covariances of x, scaled."""
        same = self.source.shape == value.shape
        covariance = pairs.covariances(self.source) if same else None
        if covariance is None or isinstance(self.scale, int | float):
            return None if covariance is None else covariance * (self.scale * self.scale)
        left, right = pairs.ends(self.gain)
        return covariance * (left * right)

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian:
        """Return the affine image of the moved x, with moved arrays."""
        xp, shape = namespace(self.source.mean), self.source.shape
        parts = (self.scale, self.shift)
        numbers = [isinstance(part, int | float) for part in parts]
        scale, shift = (
            part if number else move.move(xp.broadcast_to(part, shape))
            for part, number in zip(parts, numbers, strict=True)
        )
        return affine(move.apply_to(self.source, like), scale, shift)

    def function_first(
        self, value: Gaussian, apply: Callable[[Gaussian], Gaussian]
    ) -> Gaussian | None:
        """Return the function of x by that of its inputs, if scale and shift are numbers."""
        if not (isinstance(self.scale, int | float) and isinstance(self.shift, int | float)):
            return None
        change = lambda part: apply(affine(part, self.scale, self.shift))  # noqa: E731
        return function_first(self.source, change)

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        """Return the affine image of another x."""
        return affine(inputs[0], self.scale, self.shift)

    def branches(self, value: Gaussian, input_branches: Any) -> Any:
        """Return the branches of x, scaled and shifted."""
        change = lambda branch: affine_of_any(branch, self.scale, self.shift)  # noqa: E731
        return None if input_branches[0] is None else input_branches[0].map(change)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the affine image of x as a vector."""
        return from_vector_parts(lambda part: affine(part, self.scale, self.shift), self.source)


def affine(value: Gaussian, scale: Array | float, shift: Array | float) -> Gaussian:
    """Return scale · x + shift, exact, for numbers or arrays that broadcast to the shape of x."""
    if isinstance(scale, int | float) and scale == 1:
        return _shifted(value, shift)
    scaled = _scaled(value, scale)
    return scaled if isinstance(shift, int | float) and shift == 0 else _shifted(scaled, shift)


def affine_of_any(operand: Any, scale: Array | float, shift: Array | float) -> Any:
    """Return scale · x + shift of a Gaussian, a function of one, or an array."""
    if isinstance(operand, Gaussian):
        return affine(operand, scale, shift)
    return operand.scaled(scale, shift) if hasattr(operand, "sites") else operand * scale + shift


def _shifted(value: Gaussian, shift: Array | float) -> Gaussian:
    step = Affine(value, 1.0, shift)
    return Gaussian(
        value.mean + shift,
        value.spread,
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )


def _scaled(value: Gaussian, scale: Array | float) -> Gaussian:
    step = Affine(value, scale, 0.0)
    mirrored = isinstance(scale, int | float) and scale == -1
    return Gaussian(
        value.mean * scale,
        Spread(
            value.variance if mirrored else value.variance * (step.gain * step.gain),
            step.covariance,
            value.has_covariance,
        ),
        step,
        axis=value.axis,
        ties=value.ties,
        propagation=value.propagation,
    )


LAG_ORDER = 8  # terms of the series for lags


@dataclass(frozen=True, eq=False)
class Applied(KnowsLags, Rewritable):
    """The step of f(x) for a Gaussian x."""

    function: tuple[Gaussian, Any]  # x and f
    line: str = ""  # file and line of the user, if the rule book adds a term for the function
    componentwise = True
    nonlinear = True

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """Return x."""
        return self.function[:1]

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        """Return the function of another x."""
        return apply_activation(inputs[0], self.function[1])

    @property
    def drops_covariance(self) -> bool:  # type: ignore[override]
        """Whether components of x depend on each other, which the sweep forward drops."""
        base = self.function[0]
        return base.propagation.is_backward and not (base.independent or base.spread.plain)

    @cached_property
    def gain(self) -> Array:
        """Return E f′, by which covariances pass (Stein's lemma)."""
        base, activation = self.function
        return with_rule_book(base, activation).gain(base.mean, base.variance)

    @cached_property
    def quadratic(self) -> tuple[Gaussian, Gaussian, Array]:  # type: ignore[override]
        """Return x, x and ½ E f″, the part of second order."""
        base = self.function[0]
        scale, second = safe_scale(base.variance), self._hermite(2)[1]
        return base, base, math.sqrt(0.5) * second / scale / scale

    def _hermite(self, order: int) -> list[Array]:
        base, activation = self.function
        function = with_rule_book(base, activation)
        return function.hermite(base.mean, base.variance, order)

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Return the covariance scaled by E f′ (Stein's lemma); None if they do not broadcast."""
        base = self.function[0]
        if not broadcasts(batch_shape(base.shape, base.axis), tuple(cross.shape[:-2])):
            return None
        return rows_scaled(cross, self.gain, base.axis)

    def _derivatives(self, value: Gaussian) -> tuple[Array, Array]:
        """Return the gain, no larger than the variance allows, and the variance beyond it."""
        arrays = value.memo.arrays
        if "derivatives" not in arrays:
            explained = self.gain * self.gain * self.function[0].variance
            # some rules are approximate: their variance may be less than gain² v
            factor, rest = shrunk(value.variance, explained)
            arrays["derivatives"] = self.gain * factor, rest
        return arrays["derivatives"]

    def passed_gain(self, value: Gaussian) -> Array:
        """Return the factor by which a cotangent passes."""
        return self._derivatives(value)[0]

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent scaled by E f′ (Stein's lemma)."""
        return cotangent * self.passed_gain(value)

    def own(self, value: Gaussian) -> Added:
        """Return the variance of f(x) beyond that of its linear part."""
        variance = self._derivatives(value)[1]
        return of_functions(self.function[0], self._hermite, variance)

    def own_lag(self, value: Gaussian, offset: tuple[int, ...], absorbed: bool) -> Array | None:
        """Return the covariance at an offset beyond that of the linear parts."""
        lagged, base = lag_covariance(value, offset), lag_covariance(self.function[0], offset)
        return self._beyond(value, lagged, base, lambda array: shifted(array, offset))

    def own_along(self, value: Gaussian, along: Along) -> Array | None:
        """Return that covariance at all pairs of positions along an axis."""
        base = along.covariances(self.function[0])
        return self._beyond(value, along.covariances(value), base, along.ends)

    def _beyond(
        self, value: Gaussian, whole: Array | None, base: Array | None, ends: Callable
    ) -> Array | None:
        """Return covariances of pairs of components beyond those of the linear parts."""
        if whole is None or base is None:
            return None
        gain, own = self._derivatives(value)
        rest = whole - math.prod(ends(gain)) * base
        # a book may leave less of a function than its series has
        bound, xp = math.prod(ends(safe_scale(own))), namespace(rest)
        return xp.maximum(xp.minimum(rest, bound), -bound)

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return Cov(f(x), g(y)) by both functions; by the inputs where the other value is none."""
        if query.precedes(other, value):  # an ancestor is jointly Gaussian with x
            return NotImplemented
        if other.step.function is not None:
            return self._cross_covariance(other.step.function, query, outer)
        if other.step.inputs and other.step.entries(other) is None:
            swapped = query.by_inputs(other, value)
            return None if swapped is None else transpose(swapped)
        return NotImplemented

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | None:
        """Return that with a function by both functions, unless one is computed from the other."""
        newer, older = (value, other) if value.serial > other.serial else (other, value)
        if other.step.function is None or query.precedes(older, newer):
            return None
        covariance = self._cross_covariance(other.step.function, query, elementwise_product)
        return None if covariance is None else from_features_last(covariance, value.axis)

    def _cross_covariance(
        self, other: tuple[Gaussian, Any], query: Any, combine: Pairing
    ) -> Array | None:
        base = self.function[0]
        cross = query.cross(base, other[0])
        if cross is None:
            return None
        paired = diagonal(cross) if combine is elementwise_product else cross
        order = base.propagation.rulebook.mehler_order
        return function_covariance(
            _operand(*self.function), _operand(*other), paired, order, combine
        )

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the covariances by Mehler's series, of which the rest counts as one term."""
        base = self.function[0]
        between = pairs.covariances(base)
        if between is None:
            return None
        arrays = value.memo.arrays
        if Applied not in arrays:
            arrays[Applied] = self._coefficients(value)
        (left, right), *terms, (some, others) = map(pairs.ends, arrays[Applied])
        xp, rho = namespace(between), clipped_correlation(between, left * right)
        # the rest as one term, exact at ρ = 1; where ρ < 0 its signs are unknown
        total = xp.clip(rho, min=0.0) * (some * others)
        for ends in reversed(terms):
            total = rho * plus_product(total, *ends)
        return total

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian:
        """Return the function of the moved x, with moved arrays."""
        base, activation = self.function
        activation = with_arrays_moved(activation, move.move, base.shape)
        # A sweep asks for the function of the moved base, not for the moved function.
        return apply_activation(
            move.apply_to(base, like), activation, lambda moved: _with_moments(moved, activation)
        )

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the function of x as a vector."""
        base, activation = self.function
        return from_vector_parts(lambda part: apply_activation(part, activation), base)

    def _coefficients(self, value: Gaussian) -> list[Array]:
        """Return 1 / σ of x, Hermite coefficients, and the root of the variance they leave."""
        coefficients, rest = self._hermite(LAG_ORDER), value.variance
        for coefficient in coefficients:
            rest = rest - coefficient * coefficient
        return [1 / safe_scale(self.function[0].variance), *coefficients, safe_scale(rest)]


def _operand(base: Gaussian, activation: Any) -> Operand:
    to_features_last = lambda array: features_last(array, base.axis)  # noqa: E731
    return Operand(with_rule_book(base, activation), base.mean, base.variance, to_features_last)


def apply_activation(
    base: Gaussian, activation: Any, match: Callable[[Gaussian], Gaussian] | None = None
) -> Gaussian:
    """Return f(x) with its moments; the same function of the same Gaussian is the same object."""
    values = base.memo.values
    value = values.get(activation)
    if value is None:
        value = _applied(base, activation) if match is None else match(base)
        values[activation] = value
    return value


def _applied(base: Gaussian, activation: Any) -> Gaussian:
    if not has_arrays(activation):
        first = function_first(base, lambda part: apply_activation(part, activation))
        if first is not None:
            return first
    return _with_moments(base, activation)


def _with_moments(base: Gaussian, activation: Any) -> Gaussian:
    mean, variance = with_rule_book(base, activation).moments(base.mean, base.variance)
    carries = base.has_covariance and not base.propagation.is_backward
    covariance = (lambda: _covariance(base, activation, variance)) if carries else None
    line = current_line() if base.propagation.rulebook.has_terms else ""
    return Gaussian(
        mean,
        Spread(variance, covariance),
        Applied((base, activation), line),
        axis=base.axis,
        ties=base.ties,
        propagation=base.propagation,
    )


def function_first(base: Gaussian, apply: Callable[[Gaussian], Gaussian]) -> Gaussian | None:
    """Return a function of a value by that of its inputs, where a sweep backwards needs it."""
    if not base.propagation.is_backward or not isinstance(base.step, Rewritable):
        return None
    return base.step.function_first(base, apply)


def _covariance(base: Gaussian, activation: Any, variance: Array) -> Array:
    order = base.propagation.rulebook.mehler_order
    mean = features_last(base.mean, base.axis)
    if base.axis != -1:  # the arrays of a chain have the layout of the value
        activation = with_arrays_moved(
            activation, lambda part: features_last(part, base.axis), base.shape
        )
    function = with_rule_book(base, activation)
    spread = features_last(variance, base.axis)
    return pairs.covariance(function, mean, base.covariance, order=order, spread=spread)


def with_rule_book(base: Gaussian, activation: Any) -> Any:
    """Return a function with the moments that the program's rule book gives it, as a whole."""
    propagation = base.propagation
    book = propagation.rulebook
    if book.is_exact:
        return activation
    function = book.rule_for(activation)
    if function is activation and (parts := image_parts(activation)) is not None:
        inner, image_of = parts
        ruled = with_rule_book(base, inner)
        return activation if ruled is inner else image_of(ruled)
    missing = left_out(function.__class__)
    if not missing or not (book.derive or propagation.may_sweep):
        return function
    if book.derive:
        return Derived(function, missing)
    kind = type(function).__name__
    raise UnsupportedMoments(
        f"the rule book '{book.name}' takes {activation.name} as a {kind}, which has moments of "
        f"its own and the {', '.join(missing)} of another function: its covariances would not "
        "belong to its variances, and might have negative eigenvalues",
        sites=base.sites,
        remedy=f"define {', '.join(missing)} in {kind} too, let the book derive them by "
        "derive=True, use rules='exact', which has them, or covariance='diagonal'",
    )
