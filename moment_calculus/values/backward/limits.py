"""What a sweep refuses: arrays beyond the limit of memory, and steps that cannot go back."""

from __future__ import annotations

import math

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values.backward.cotangents import Cotangent, OuterCotangent
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.memory import count_covariance

REMEDY = "use covariance='diagonal' or 'full', smaller batches, or raise memory_limit"


def check_bytes(value: Gaussian, use: OuterCotangent) -> None:
    """Raise UnsupportedMoments if the derivatives of every row by a matrix exceed the limit."""
    outputs = use.outputs
    rows = math.prod(
        outputs.array.shape[1 + r if a is None else outputs.array.ndim + a]
        for r, a in enumerate(outputs.carried)
    )
    _check(value, outputs.array.shape[0] * rows * math.prod(value.shape), "each row by a matrix")


def check_rows(value: Gaussian, cotangent: Cotangent) -> None:
    """Raise UnsupportedMoments if the derivatives of every row by a value exceed the limit."""
    lead = math.prod(cotangent.array.shape[: cotangent.lead])
    _check(value, lead * math.prod(value.shape), "each row")


def check_pull_rows(value: Gaussian, source: Gaussian, cotangent: Cotangent, axis: int) -> None:
    """Raise UnsupportedMoments if the derivatives of every element by an input exceed the limit."""
    lead = math.prod(cotangent.array.shape[: cotangent.lead])
    _check(value, lead * value.shape[axis] * math.prod(source.shape), "each row by other rows")


def check_spread(value: Gaussian, cotangent: Cotangent, row: int) -> None:
    """Raise UnsupportedMoments if the derivatives of every row by all elements exceed the limit."""
    count = math.prod(cotangent.array.shape) * value.shape[cotangent.axis_of(row)]
    _check(value, count, "each row by elements of other rows")


def _check(value: Gaussian, count: int, what: str) -> None:
    needed, limit = count * value.mean.dtype.itemsize, value.propagation.memory_limit
    count_covariance(needed)
    if needed > limit:
        raise UnsupportedMoments(
            f"covariance='backward' needs the derivatives of {what}, for a value of shape "
            f"{value.shape}: {needed} bytes; the limit is {limit:.0f}",
            sites=value.sites,
            remedy=REMEDY,
        )


def no_pull(value: Gaussian) -> UnsupportedMoments:
    """Return the error for a value of which no covariance can be pulled back."""
    return UnsupportedMoments(
        f"covariance='backward' cannot go back through the step "
        f"'{type(value.step).__name__.strip('_')}' of a value of shape {value.shape}",
        sites=value.sites,
        remedy="use covariance='diagonal' or 'full', or draw the sites by naming them in "
        "sample_sites=",
    )
