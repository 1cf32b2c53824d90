"""Functions of one Gaussian: latent sites, activations, affine maps, and their fusion.

``h * sigmoid(1.7 * h)`` and ``exp(-h * h)`` are functions of h alone. They are fused and
integrated once, and 1.7 h is not treated as another variable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.base import Rescaled
from moment_calculus.functions.combinators import Bounds, Fused, Identity, Scaled, value_range
from moment_calculus.functions.families.elementary import Exp
from moment_calculus.functions.recognition import RecognitionPolicy
from moment_calculus.functions.table import Activation, activation
from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Deferred, Gaussian, Root, Spread, Value
from moment_calculus.values.ancestry import affine_line
from moment_calculus.values.deferred import as_function, base_of, unscaled
from moment_calculus.values.elementwise import affine
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements, broadcast_shape

__all__ = ["apply", "is_value", "scale_shift", "site_value"]


def site_value(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, event_dim: int = 1
) -> Gaussian:
    """Make the Gaussian value of a latent site with independent components."""
    return Gaussian(
        mean,
        Spread(variance),
        Root(weight=event_dim > 1),
        # Without event axes every component is an element of the batch.
        axis=-1 if event_dim and len(mean.shape) else None,
        support=all_elements([name]),
        propagation=propagation,
    )


def is_value(operand: Any) -> bool:
    """Whether an operand is a random value."""
    return isinstance(operand, Gaussian | Deferred)


def shape_of(operand: Any) -> tuple[int, ...]:
    """Return the shape of a value, an array or a number."""
    return tuple(getattr(operand, "shape", ()))


def apply(activation: Activation, value: Value) -> Deferred:
    """Apply an activation elementwise; functions of functions are composed, not matched."""
    if not is_value(value):
        raise UnsupportedMoments(
            f"{activation.name} of a certain value with random parameters",
            remedy="make the parameters of activations certain" + OR_DRAW,
        )
    if isinstance(value, Gaussian):
        return Deferred(value, activation)
    return value.then(activation)


def scale_shift(value: Value, scale: Array | float = 1.0, shift: Array | float = 0.0) -> Value:
    """Return scale · x + shift for certain, broadcastable arrays or numbers, exactly."""
    wide, shapes = value, [shape for part in (scale, shift) if (shape := shape_of(part))]
    if shapes:
        wide = broadcast(value, broadcast_shape(value.shape, *shapes))
    if isinstance(wide, Gaussian):
        return affine(wide, scale, shift)
    numbers = isinstance(scale, int | float) and isinstance(shift, int | float)
    return wide if numbers and (scale, shift) == (1, 0) else wide.scaled(scale, shift)


def fuse_functions(
    combine: Callable,
    *parts: Value,
    closed_form: Callable[[Gaussian], Gaussian] | None = None,  # the exact moments, if known
    fallback: Callable[[], Gaussian] | None = None,  # used if the table has no such function
    bounds: Callable[[], Bounds] = Bounds,
) -> Deferred:
    """Combine values that are functions of one Gaussian into one function of it."""
    bases = [base_of(part) for part in parts]
    if any(base is not bases[0] for base in bases):
        variable = _integration_variable(bases)
        parts = tuple(_in_terms_of(part, variable) for part in parts)
    functions = tuple(p.function if isinstance(p, Deferred) else Identity() for p in parts)
    base = base_of(parts[0])
    function = Fused.of(combine, functions, bounds, RecognitionPolicy.of(base))
    return Deferred(base, function, closed_form=closed_form, fallback=fallback)


def are_of_one_gaussian(left: Value, right: Value, *, product: bool = False) -> bool:
    """Whether two operands are functions of one Gaussian and need fusion to be exact."""
    if left.shape != right.shape or _variable_of(left) is not _variable_of(right):
        return False
    if product:
        return True
    # A sum of affine images, or of multiples of the same function, is exact without
    # fusion.
    functions = [value for value in (left, right) if isinstance(value, Deferred)]
    return len({(id(value.base), unscaled(value.function)) for value in functions}) == 2


def stays_function(left: Value, right: Value) -> bool:
    """Whether a sum stays a function of one Gaussian, which a later operation may recognise."""
    functions = isinstance(left, Deferred) or isinstance(right, Deferred)
    if not functions or not RecognitionPolicy.of(base_of(left)).allowed:
        return False
    return are_of_one_gaussian(left, right, product=True)


def _variable_of(value: Value) -> Gaussian:
    return affine_line(base_of(value))[-1]


def _integration_variable(bases: Sequence[Gaussian]) -> Gaussian:
    """Return the Gaussian to integrate over: the nearest of which all bases are affine images."""
    lines = [affine_line(base) for base in bases]
    others = [{id(value) for value in line} for line in lines[1:]]
    common = next(value for value in lines[0] if all(id(value) in line for line in others))
    # A base that is shifted by an array is preferred: the function then jumps at a known
    # number, and the array gets its gradient.
    shifted = {id(base): base for base in bases if base is not common and _is_shifted(base)}
    if len(shifted) != 1:
        return common
    (base,) = shifted.values()
    affine = base.step.affine
    return base if affine is not None and affine[0] is common else common


def _is_shifted(base: Gaussian) -> bool:
    """Whether a Gaussian is x + c for an array c."""
    if base.step.affine is None:
        return False
    shift = base.step.affine[2]
    return base.step.identity and not isinstance(shift, int | float)


def _in_terms_of(value: Value, variable: Gaussian) -> Any:
    """Rewrite a function of a Gaussian as a function of another one on its affine line."""
    base = base_of(value)
    if base is variable:
        return value
    inner = _as_function_of(base, variable)
    if isinstance(value, Gaussian):
        return inner
    if isinstance(value.function, Scaled):
        source = _in_terms_of(value.of(value.function.inner), variable)
        return source.scaled(value.function.scale, value.function.shift)
    return inner.then(value.function)


def _as_function_of(value: Gaussian, variable: Gaussian) -> Any:
    """Return a Gaussian as an affine function of the variable."""
    if value is variable:
        return Deferred(value, activation("identity"))
    affine = variable.step.affine
    if affine is not None and value is affine[0]:
        return scale_shift(Deferred(variable, activation("identity")), 1.0, -affine[2])
    if value.step.affine is None:
        raise AssertionError("a base that is not on the line of the variable")
    source, scale, shift = value.step.affine
    return scale_shift(_as_function_of(source, variable), scale, shift)


def exponential_parts(value: Value) -> tuple[Gaussian, float, Any] | None:
    """Return x, r and c > 0 if the value is c e^{rx}; None for other values."""
    if not isinstance(value, Deferred):
        return None
    factor: Any = 1.0
    kind = value.function
    while isinstance(kind, Scaled):
        zero_shift = isinstance(kind.shift, int | float) and kind.shift == 0
        # A traced factor is taken as positive: its roots and logarithm are NaN elsewhere.
        if not (zero_shift and (kind.extent.positive or value_range(kind.scale) is None)):
            return None
        factor, kind = factor * kind.scale, kind.inner
    if type(kind) is Rescaled and type(kind.activation) is Exp and kind.shift == 0 < kind.outer:
        return value.base, kind.inner, factor * kind.outer
    return (value.base, 1.0, factor) if type(kind) is Exp else None


def one_function(combine: Callable, left: Value, right: Value) -> Gaussian | None:
    """Return the moments of two functions of one Gaussian, combined; None for other values."""
    # A function whose moments were computed before is treated as that function again.
    left, right = as_function(left), as_function(right)
    plain = isinstance(left, Gaussian) and isinstance(right, Gaussian)
    if (plain and combine is operator.add) or not are_of_one_gaussian(left, right, product=True):
        return None
    return fuse_functions(combine, left, right).gaussian()
