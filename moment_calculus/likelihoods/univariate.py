"""Any univariate distribution, by quadrature over its random parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.errors import BY_DRAWING, UnsupportedMoments
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.spread import broadcasts_to


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Raise UnsupportedMoments unless the random parameters broadcast to a univariate batch."""
    fits = all(broadcasts_to(argument.shape, fn.batch_shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_unconstrained(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],  # name, value and constraint
    is_real: Callable[[Any], bool],  # whether a constraint allows all real numbers
    *,
    link_names: str,  # names of functions with confined values, for the message
) -> None:
    """Raise UnsupportedMoments if a parameter is Gaussian although it has a constraint."""
    # A Gaussian leaves every interval: mass outside would be integrated without a
    # warning.
    for name, value, constraint in parameters:
        if isinstance(value, Gaussian) and not is_real(constraint):
            raise gaussian_with_constraint(
                name, fn, constraint, sites=value.sites, link_names=link_names
            )


def fill_outside_support(support: Any, value: Any, results: Any, below: float, above: float) -> Any:
    """Return a function's results, replaced where the value is below or above the support."""
    # Frameworks do not check this: a density formula goes on beyond an end that is a
    # parameter.
    low, high = support_bounds(support, lambda end: False)
    xp = namespace(results)
    return xp.where(value < low, below, xp.where(value > high, above, results))


def support_bounds(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the ends between which all draws are; infinite where an end is random or missing."""
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    candidates = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in candidates)
    if support.is_discrete and low == -math.inf:  # a boolean support has no ends
        low = 0
    return low, high


def not_univariate(fn: Any, sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for random parameters that are not one for each element of the batch."""
    return UnsupportedMoments(
        f"the random parameters of a {type(fn).__name__} are not those of a univariate "
        "distribution, one for each element of its batch",
        sites=sites,
        remedy=f"draw the latent sites by {BY_DRAWING}",
    )


def gaussian_with_constraint(
    parameter: str, fn: Any, constraint: Any, *, sites: Iterable[str], link_names: str
) -> UnsupportedMoments:
    """Return the error for a Gaussian as a parameter that must stay in an interval."""
    return UnsupportedMoments(
        f"the parameter {parameter} of {type(fn).__name__} is a Gaussian value, or matched by "
        f"one, which is not confined to {constraint}",
        sites=sites,
        remedy=f"make it a function of one Gaussian with such values, e.g. {link_names}, or draw "
        "its sites by naming them in sample_sites=",
    )
