"""When the random parameters of a distribution are those of a univariate one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.hosts.wording import not_confined, not_univariate
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
