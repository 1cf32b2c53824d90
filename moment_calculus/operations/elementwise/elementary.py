"""Powers, logarithms and other elementary functions beyond the table of activations.

They are integrated, or rejected with the reason: a sum of squares, absolute values or
exponentials is positive, but the Gaussian with its moments has mass below zero. A clip
gathers this mass at its level ε, where ε^(−½), 1/ε and log ε are huge: E (max(q, 0) +
1e-6)^(−½) of the sum q of two squares was 110 standard deviations off.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NoReturn

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, sites_of
from moment_calculus.functions.combinators import Bounds, Composed, Fused, Scaled, value_range
from moment_calculus.functions.families.elementary import capped_exp
from moment_calculus.functions.families.piecewise import PiecewiseLinear
from moment_calculus.functions.recognition import RecognitionPolicy
from moment_calculus.functions.table import (
    Exp,
    IntegratedWithInverse,
    NormalCdf,
    Power,
    ReLU,
    Rescaled,
    Sigmoid,
    activation,
)
from moment_calculus.numerics.arrays import Array, digamma, gammaln, log_ndtr, namespace
from moment_calculus.operations.elementwise.complements import log_of_shifted_exponential
from moment_calculus.operations.elementwise.factors import (
    Joint,
    assume_positive,
    bounds_of_part,
    is_linear,
    is_positive,
    joint_of,
    positive_joint,
    several_factors,
)
from moment_calculus.operations.elementwise.joint import of_joint
from moment_calculus.operations.elementwise.normal_probabilities import normal_deviation
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, exponential_parts, scale_shift
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.deferred import unscaled
from moment_calculus.values.step import Product

__all__ = ["UNSUPPORTED", "array_power", "exponential", "power", "raise_unsupported"]

HARMLESS = 1.0  # above this level x^(−p), √x and log x are no steeper than the clip itself


def check_not_clipped(value: Any, what: str) -> None:
    """Raise UnsupportedMoments for a power or logarithm of a clip with inexact moments."""
    # A clip of a value that is linear in the latent sites has exact moments.
    clipped = value.bounds.low < HARMLESS and _has_corner(value.function, value.policy)
    if not clipped or is_linear(value.base):
        return
    raise UnsupportedMoments(
        f"{what} of a value that is clipped at {value.bounds.low:g} and known by its mean and "
        "variance only: its distribution is not Gaussian, and a Gaussian is far off close to the "
        "clip, where the function is steep",
        sites=value.sites,
        remedy="take log_softmax of logits without a clip, make one latent Gaussian, or a linear "
        "map of some, positive by exp or softplus, or draw the sites by naming them in "
        "sample_sites=",
    )


def _has_corner(function: Any, policy: RecognitionPolicy) -> bool:
    """Whether a function is constant below some level, with a corner there."""
    function = unscaled(function)
    if isinstance(function, Composed):
        return _is_clip(function.outer) or _has_corner(function.inner, policy)
    if isinstance(function, Fused) and function.recognised_function is function:
        return any(_has_corner(part, policy) for part in function.parts)
    return _is_clip(policy.recognised_function(function))


def _is_clip(function: Any) -> bool:
    flat = isinstance(function, PiecewiseLinear) and function.slopes[0] == 0
    return flat or isinstance(function, ReLU)


LARGEST_POWER = 32


@dataclass(frozen=True)
class PositiveFunction:
    """An elementwise function of positive values, used within a chain; it has no moments itself."""

    function: Callable[[Array], Array]
    # The rest as of an Activation; a pole at zero counts as fast growth.
    bounds: tuple[float, float] = (-math.inf, math.inf)
    open_ended: bool = False
    superlinear: bool = False
    exponent: float | None = None  # of a power
    knots = ()

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return no preimages: what follows these smooth functions hardly has corners."""
        return ()


def log(value: Value) -> Value:
    """Return the logarithm of a positive function of a Gaussian; raise if it may be ≤ 0.

    Of a product of positive functions it is the sum of their logarithms.
    """
    if (factors := several_factors(value)) is not None:
        return reduce(add, map(log, factors))
    result = exponential_parts(value)
    if result is not None:
        base, rate, factor = result
        shift = math.log(factor) if isinstance(factor, float | int) else _log(factor)
        return scale_shift(base, rate, shift)
    if (known := log_of_shifted_exponential(value)) is not None:
        return known
    if isinstance(value, Deferred) and (known := _known_log(value)) is not None:
        return known
    if (joint := positive_joint(value)) is not None:
        ends = _end(joint.bounds.low, math.log), _end(joint.bounds.high, math.log)
        return of_joint(_log, joint, bounds=Bounds(*ends))
    source = _require(value, "log")
    ends = _end(source.bounds.low, math.log), _end(source.bounds.high, math.log)
    return source.then(PositiveFunction(_log, ends))


def _known_log(value: Deferred) -> Value | None:
    """Return the logarithm of a power, eˣ, Φ, S or 1 + exp; None of other functions."""
    if (deviation := normal_deviation(value)) is not None:
        return apply(LOG_NDTR, deviation)
    if isinstance(value.function, Composed):
        outer, inner = value.function.outer, value.of(value.function.inner)
        if type(outer) is Exp:
            return inner
        if isinstance(outer, PositiveFunction) and outer.exponent is not None:
            return scale_shift(log(inner), outer.exponent)
    function = value.recognised_function
    if isinstance(function, NormalCdf):
        return value.of(LOG_NDTR)
    if isinstance(function, Sigmoid):
        return value.of(activation("logsigmoid"))
    return value.of(activation("softplus")) if _is_one_plus_exp(value) else None


def log1p(value: Value) -> Value:
    """Return log(1 + x) of a function x of a Gaussian; raise if it may be ≤ −1."""
    if isinstance(value, Deferred) and type(value.function) is Exp:
        return Deferred(value.base, activation("softplus"))
    if (known := log_of_shifted_exponential(scale_shift(value, 1.0, 1.0))) is not None:
        return known
    source = value if isinstance(value, Deferred) else _raise_undefined(value, "log1p")
    bounds = source.bounds.affine(1.0, 1.0)
    if not bounds.positive:
        _raise_undefined(value, "log1p")
    ends = _end(bounds.low, math.log), _end(bounds.high, math.log)
    plain = PositiveFunction(lambda x: namespace(x).log1p(x), ends, source.bounds.open_ended)
    return source.then(plain)


def log_normal_cdf(value: Value) -> Value:
    """Return log Φ(x), by quadrature."""
    return apply(LOG_NDTR, value)


def _end(bound: float, function: Callable[[float], float]) -> float:
    """Return f(bound) for an increasing f of positive numbers, −∞ or ∞ where that is infinite."""
    if bound == math.inf:
        return bound
    return function(bound) if bound > 0 else -math.inf


def power(value: Value, exponent: float) -> Value:
    """Return a value to the power of a number but zero; raise if the result is not defined."""
    if exponent == 1:
        return value
    parts = exponential_parts(value)
    if parts is not None:
        base, rate, factor = parts
        result = Deferred(base, _exponential_of(rate * exponent))
        unscaled = isinstance(factor, int | float) and factor == 1
        return result if unscaled else scale_shift(result, factor**exponent)
    if exponent == -1 and isinstance(value, Deferred) and _is_one_plus_exp(value):
        return value.of(Rescaled(Sigmoid(), -1.0))
    # Natural powers are defined for every value; all others for positive values only.
    natural = exponent > 0 and float(exponent).is_integer() and exponent <= LARGEST_POWER
    if natural and not is_positive(value):
        return apply(Power(int(exponent)), value)
    if (joint := positive_joint(value)) is not None:
        ends = _ends_of_power(joint.bounds, exponent)
        return of_joint(partial(_raised, exponent), joint, bounds=Bounds(*ends, True))
    source = _require(value, f"the power {exponent:g}", zero=exponent > 0)
    bounds = source.bounds
    ends = _ends_of_power(bounds, exponent)
    superlinear = not 0 <= exponent <= 1
    plain = PositiveFunction(lambda x: x**exponent, ends, bounds.positive, superlinear, exponent)
    return source.then(plain)


def inverse_of_exponential(value: Any) -> Value | None:
    """Return exp(−f) of a value exp(f), f a function of a Gaussian; None of other values.

    None too where −f grows faster than linearly without a bound: exp(−f) has no moments.
    """
    if not isinstance(value, Deferred) or not isinstance(value.function, Composed):
        return None
    if type(value.function.outer) is not Exp:
        return None
    exponent = value.of(value.function.inner)
    if exponent.function.superlinear and exponent.bounds.low == -math.inf:
        return None
    return apply(Exp(), scale_shift(exponent, -1.0))


def array_power(value: Value, exponent: Array) -> Value:
    """Return xᵏ = exp(k log x) for an array or traced number k; raise if x may not be positive."""
    parts = exponential_parts(value)
    if parts is not None:
        base, rate, factor = parts
        result = apply(Exp(), scale_shift(base, rate * exponent))
        unscaled = isinstance(factor, int | float) and factor == 1
        return result if unscaled else scale_shift(result, factor**exponent)
    if (joint := positive_joint(value)) is not None:
        return of_joint(operator.pow, joint, exponent, bounds=Bounds(0.0, open_ended=True))
    if not (several_factors(value) or is_positive(assume_positive(value))):
        raise UnsupportedMoments(
            "a power of a base that may be negative or zero, by an exponent of shape "
            f"{tuple(exponent.shape)} that is not one number known when the program is traced",
            sites=value.sites,
            remedy="make the base positive, e.g. by exp or sigmoid (a positive latent site is), or "
            "stack the powers by one number each" + OR_DRAW,
        )
    return apply(Exp(), scale_shift(log(value), exponent))


def _power_of_random(base: Joint, exponent: Value) -> Gaussian:
    """Return a random power; its mean is infinite if the exponent is log-normal and the base > 1.

    Ratios of such powers are bounded nevertheless.
    """
    infinite = base.bounds.high > 1 and isinstance(exponent, Deferred)
    if infinite and isinstance(exponent, Deferred):
        infinite = exponent.function.superlinear and exponent.bounds.high == math.inf
    bounds = Bounds(0.0, math.inf if base.bounds.high > 1 else 1.0, True)
    part = joint_of(exponent)
    if bounds.high == 1 and not bounds_of_part(part).positive:
        bounds = Bounds(0.0, open_ended=True)
    return of_joint(_random_power, base, part, bounds=bounds, infinite=infinite)


def _random_power(base: Array, exponent: Array) -> Array:
    """Return bᵏ, capped so that squares are finite: ratios of powers are bounded."""
    return capped_exp(exponent * _log(base), share=0.5)


def _raised(exponent: float, x: Array) -> Array:
    return x**exponent


def _ends_of_power(bounds: Bounds, exponent: float) -> tuple[float, float]:
    low, high = sorted(_end_of_power(end, exponent) for end in (bounds.low, bounds.high))
    return low, high


def _end_of_power(bound: float, exponent: float) -> float:
    if bound in (0.0, math.inf):
        return 0.0 if (bound == 0) == (exponent > 0) else math.inf
    return bound**exponent


def exponential(base: Any, value: Value) -> Value:
    """Return a positive base to the power of a value; raise for any other base."""
    if hasattr(base, "sites"):
        if (joint := positive_joint(base, several=False)) is not None and base is not value:
            return _power_of_random(joint, value)
        raise UnsupportedMoments(
            "a random power of a random value that may be negative or zero",
            sites=base.sites | value.sites,
            remedy="make the base positive, e.g. by exp or sigmoid, or the exponent certain"
            + OR_DRAW,
        )
    number, base_range = isinstance(base, int | float), value_range(base)
    # A traced array is taken as positive: its logarithm is NaN where it is negative.
    if base_range is not None and not base_range[0] > 0:
        raise UnsupportedMoments(
            f"a random power of a base that is not positive (it is ≥ {base_range[0]:g})",
            sites=value.sites,
            remedy="use a positive base" + OR_DRAW,
        )
    if number and base == 1:
        return scale_shift(value, 0.0, 1.0)
    if number:  # a function of the same Gaussian, so that it fuses with others
        return apply(_exponential_of(math.log(base)), value)
    return apply(Exp(), scale_shift(value, _log(base)))


def _log(x: Array) -> Array:
    return namespace(x).log(x)


def _exponential_of(rate: float) -> Any:
    return Exp() if rate == 1 else Rescaled(Exp(), rate, name="exponential")


def _is_one_plus_exp(value: Deferred) -> bool:
    function = value.function
    if not isinstance(function, Scaled):
        return False
    parts = [part for part in (function.scale, function.shift) if isinstance(part, int | float)]
    return parts == [1, 1] and type(function.inner) is Exp


def _require(value: Value, what: str, *, zero: bool = False) -> Deferred:
    """Return the value if it is known to be positive, or zero where that is allowed; else raise."""
    value = assume_positive(value)
    if isinstance(value, Deferred) and (value.bounds.positive or (zero and value.bounds.low >= 0)):
        check_not_clipped(value, what)
        return value
    return _raise_undefined(value, what)


def _raise_undefined(value: Value, what: str) -> NoReturn:
    remedy = "write the whole as a function of one Gaussian, e.g. exp of a sum of logarithms"
    if isinstance(value, Deferred):
        low = value.bounds.low
        cause = f"{what} of a function that may be negative or close to zero (it is ≥ {low:g})"
        remedy = "make it positive first, e.g. by exp or softplus, parametrise the result itself"
    elif isinstance(value.step, Product):
        cause = (
            f"{what} of a product of functions of different Gaussians, which is matched by a "
            "Gaussian and so takes negative values"
        )
    elif is_linear(value):
        cause = f"{what} of a Gaussian is not defined: it takes negative values"
        remedy = "make it positive first, e.g. by exp or softplus, parametrise the result itself"
    else:
        cause = (
            f"{what} of a value that is known by its mean and variance only, and so matched by a "
            "Gaussian, which takes negative values"
        )
    raise UnsupportedMoments(cause, sites=value.sites, remedy=remedy + OR_DRAW)


INFINITE = math.inf


def _numeric(inverse: Any, stretch: Any, low: float = -INFINITE, high: float = INFINITE) -> Any:
    """Return a function that computes the preimages of a number under an increasing function."""

    def preimages(level: Any) -> tuple[tuple[Any, Any], ...]:
        inside = isinstance(level, int | float) and low < level < high
        return ((inverse(level), stretch(level)),) if inside else ()

    return preimages


def _cosh_preimages(level: Any) -> tuple[tuple[Any, Any], ...]:
    if not isinstance(level, int | float) or level <= 1:
        return ()
    location = math.acosh(level)
    stretch = 1 / math.sqrt(level * level - 1)
    return (location, stretch), (-location, stretch)


# Functions that are defined everywhere: quadrature computes their moments.
_ANYWHERE = {
    "asinh": IntegratedWithInverse(
        lambda x: namespace(x).asinh(x), name="asinh", inverse=_numeric(math.sinh, math.cosh)
    ),
    "atan": IntegratedWithInverse(
        lambda x: namespace(x).atan(x),
        name="atan",
        bounds=(-math.pi / 2, math.pi / 2),
        inverse=_numeric(
            math.tan, lambda y: 1 + math.tan(y) ** 2, low=-math.pi / 2, high=math.pi / 2
        ),
    ),
    "cosh": IntegratedWithInverse(
        lambda x: namespace(x).cosh(x),
        name="cosh",
        bounds=(1.0, INFINITE),
        inverse=_cosh_preimages,
    ),
    "sinh": IntegratedWithInverse(
        lambda x: namespace(x).sinh(x),
        name="sinh",
        inverse=_numeric(math.asinh, lambda y: 1 / math.sqrt(1 + y * y)),
    ),
}
# Functions that are defined on an interval: its ends, and whether they belong to it.
_WITHIN: dict[str, tuple[PositiveFunction, float, float, bool]] = {
    "acos": (PositiveFunction(lambda x: namespace(x).acos(x), (0.0, math.pi)), -1.0, 1.0, True),
    "acosh": (
        PositiveFunction(lambda x: namespace(x).acosh(x), (0.0, INFINITE)),
        1.0,
        INFINITE,
        True,
    ),
    "asin": (
        PositiveFunction(lambda x: namespace(x).asin(x), (-math.pi / 2, math.pi / 2)),
        -1.0,
        1.0,
        True,
    ),
    "digamma": (PositiveFunction(digamma), 0.0, INFINITE, False),
    "lgamma": (PositiveFunction(gammaln), 0.0, INFINITE, False),
}
LOG_NDTR = IntegratedWithInverse(log_ndtr, name="log_ndtr", bounds=(-INFINITE, 0.0))
FUNCTIONS = (*_ANYWHERE, *_WITHIN)

_JUMPS = "it jumps at infinitely many places"
_ENDS = "it is infinite at the ends of the interval on which it is defined"
# Primitives that have no moments, with the reason and what to do.
UNSUPPORTED = {
    "atan2": ("it is a function of the direction of two values", "use jnp.arctan of one value"),
    "atanh": (_ENDS, "parametrise the result itself"),
    "bessel_i0e": ("no rule integrates it", "use exp or softplus to make a value positive"),
    "bessel_i1e": ("no rule integrates it", "use tanh to bound a value"),
    "ceil": (_JUMPS, "use jnp.heaviside or comparisons for single steps"),
    "erf_inv": (_ENDS, "use the Gaussian itself: jax.scipy.special.ndtr undoes it"),
    "floor": (_JUMPS, "use jnp.heaviside or comparisons for single steps"),
    "nextafter": ("it depends on the rounding of single numbers", "drop it"),
    "rem": (_JUMPS, "use sin and cos for periodic functions"),
    "round": (_JUMPS, "use jnp.heaviside or comparisons for single steps"),
    "tan": ("its poles leave no moments", "use tanh, or sin and cos"),
}


def apply_by_name(name: str, value: Value) -> Value:
    """Apply one of :data:`FUNCTIONS`; raise if the value may leave the domain of the function."""
    if name in _ANYWHERE:
        return apply(_ANYWHERE[name], value)
    function, low, high, ends = _WITHIN[name]
    if isinstance(value, Deferred):
        bounds = value.bounds
        inside = low <= bounds.low and bounds.high <= high if ends else bounds.positive
        if inside:
            return value.then(function)
    where = f"[{low:g}, {high:g}]" if ends else f"({low:g}, {high:g})"
    raise UnsupportedMoments(
        f"{name} of a value that may leave {where}, where it is defined",
        sites=value.sites,
        remedy="keep the value in the interval first, e.g. by exp, softplus or tanh" + OR_DRAW,
    )


def raise_unsupported(name: str, *operands: Any) -> NoReturn:
    """Raise UnsupportedMoments for a primitive of :data:`UNSUPPORTED`."""
    reason, remedy = UNSUPPORTED[name]
    raise UnsupportedMoments(
        f"{name} of a random value is not supported: {reason}",
        sites=sites_of(*operands),
        remedy=f"{remedy}, or draw the sites by naming them in sample_sites=",
    )
