"""Elementary functions beyond the table of activations: integrated, or rejected with the reason."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.table import IntegratedWithInverse
from moment_calculus.numerics.special import digamma, gammaln, log_ndtr, namespace
from moment_calculus.operations.elementwise.positive import PositiveFunction
from moment_calculus.operations.elementwise.unary import apply as _apply
from moment_calculus.values import Deferred, Value

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
    place = math.acosh(level)
    stretch = 1 / math.sqrt(level * level - 1)
    return (place, stretch), (-place, stretch)


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
        return _apply(_ANYWHERE[name], value)
    function, low, high, ends = _WITHIN[name]
    if isinstance(value, Deferred) and _is_within(value.bounds, low, high, ends):
        return value.then(function)
    where = f"[{low:g}, {high:g}]" if ends else f"({low:g}, {high:g})"
    raise UnsupportedMoments(
        f"{name} of a value that may leave {where}, where it is defined",
        sites=value.sites,
        remedy="keep the value in the interval first, e.g. by exp, softplus or tanh" + OR_DRAW,
    )


def _is_within(bounds: Any, low: float, high: float, ends: bool) -> bool:
    if ends:
        return low <= bounds.low and bounds.high <= high
    return bounds.positive


def raise_unsupported(name: str, *operands: Any) -> NoReturn:
    """Raise UnsupportedMoments for a primitive of :data:`UNSUPPORTED`."""
    reason, remedy = UNSUPPORTED[name]
    raise UnsupportedMoments(
        f"{name} of a random value is not supported: {reason}",
        sites=[site for operand in operands for site in getattr(operand, "sites", ())],
        remedy=f"{remedy}, or draw the sites by naming them in sample_sites=",
    )
