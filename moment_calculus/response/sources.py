"""What the parameters of a likelihood are made of: Gaussians, whose variances can be corrected."""

from __future__ import annotations

from moment_calculus.hosts.moments import Moments, as_value
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.values import Deferred, Gaussian, Value

Random = Value | Composite


def source_of(value: Random) -> Gaussian:
    """The Gaussian of which a value is a function.

    Args:
        value: a random parameter of a distribution.
    """
    if isinstance(value, Composite):
        return value.source
    return value.base if isinstance(value, Deferred) else value.gaussian()


def with_source(value: Random, moments: Moments, name: str) -> Random:
    """The same function of another Gaussian, which depends on nothing else.

    Args:
        value: a random parameter of a distribution.
        moments: of the Gaussian.
        name: of its own.
    """
    source = as_value(moments, name, source_of(value).propagation)
    if isinstance(value, Composite):
        return type(value)(source)
    return Deferred(source, value.settled) if isinstance(value, Deferred) else source
