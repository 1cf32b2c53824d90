"""When the random parameters of a distribution are those of a univariate one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.hosts.wording import not_confined, not_univariate
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.layout import broadcasts_to


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Refuse random parameters that are not one for each element of a distribution's batch.

    Args:
        fn: the distribution.
        arguments: its random parameters.

    Raises:
        UnsupportedMoments: if a parameter does not broadcast to the batch, or draws are vectors.
    """
    fits = all(broadcasts_to(fn.batch_shape, argument.shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_confined(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],
    is_real: Callable[[Any], bool],
    *,
    links: str,
) -> None:
    """Refuse Gaussian parameters where the distribution is confined.

    A Gaussian leaves every interval: what lies outside would be integrated over in silence.

    Args:
        fn: the distribution.
        parameters: name, value and constraint of its random parameters.
        is_real: whether a constraint is none.
        links: the host's spelling of functions whose values are confined.

    Raises:
        UnsupportedMoments: if a Gaussian parameter has a constraint.
    """
    for name, value, constraint in parameters:
        if isinstance(value, Gaussian) and not is_real(constraint):
            raise not_confined(name, fn, constraint, sites=value.sites, links=links)


def within(support: Any, value: Any, found: Any, below: float, above: float) -> Any:
    """What a distribution says of values, and what is true of those outside its support.

    Hosts do not look where a value is: a density goes on beyond an end that is a parameter.

    Args:
        support: the constraint of its draws, with certain ends.
        value: where, an array.
        found: what the host says.
        below: what is true below the lower end.
        above: likewise, above the upper end.
    """
    low, high = bounds_of(support, lambda end: False)
    xp = namespace(found)
    return xp.where(value < low, below, xp.where(value > high, above, found))


def bounds_of(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Numbers or arrays between which all draws of a distribution are.

    Args:
        support: the constraint of its draws.
        is_random: whether a bound is a random value, and therefore none.
    """
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    found = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in found)
    if support.is_discrete and low == -math.inf:  # zeros and ones
        low = 0
    return low, high
