"""Begin where the loss is finite: shrink the initial scales, and if need be the locations.

Inputs that nobody standardised make the variance before an ``exp`` so large that its expectation
overflows; scales of a fraction of the usual ones, around the same locations, do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import warn_user
from moment_inference.optimisation.rounds import DeterministicLoss

STEP = 4.0  # factor between two candidates
DROP = 0.1  # of its loss, to which a smaller candidate has to come
# What the hosts' distributions say of an exp that underflows, or of an overflow.
INVALID = re.compile(r"invalid \w+ parameter|satisfy the constraint|invalid parameter")


class Factors(NamedTuple):
    """What initial scales and locations are multiplied by."""

    scales: float
    locations: float


SMALLER_SCALES = [Factors(STEP**-power, 1.0) for power in range(1, 7)]
SMALLER_STARTS = [Factors(STEP**-power, STEP**-power) for power in range(1, 11)]


def finite_start(loss: float, loss_at: Callable[[Factors], float]) -> Factors | None:
    """Return the factors of the start that is taken, with a warning; None if none is finite.

    ``loss_at`` returns the loss of a candidate, NaN if its slope is not finite. ``loss`` is that
    of the whole start.
    """
    best, lowest = None, math.inf
    for factors in (*SMALLER_SCALES, *SMALLER_STARTS):
        value = loss_at(factors)
        is_lower = best is None or value < lowest - (1 - DROP) * abs(lowest)
        if math.isfinite(value) and is_lower:
            best, lowest = factors, value
    if best is not None:
        _warn(best, f"its loss is {loss:.4g}, or its slope not finite; now it is {lowest:.4g}")
    return best


def _warn(factors: Factors, why: str) -> None:
    also = f" and the initial locations by {factors.locations:.2g}" * (factors.locations < 1)
    warn_user(
        f"the initial scales were multiplied by {factors.scales:.2g}{also}, as the usual start is "
        f"too far out ({why}): standardise the inputs, (x - x.mean(0)) / x.std(0), which also "
        "trains better",
        UserWarning,
    )


def is_finite(loss: float, slope: np.ndarray) -> bool:
    """Return whether a loss, its slope and the squares of it, in single precision, are finite."""
    limit = math.sqrt(float(np.finfo(np.float32).max))  # Adam takes squares
    return math.isfinite(loss) and bool((abs(slope) < limit).all())


def finite_vector(
    objective: DeterministicLoss, start: np.ndarray, at: Callable[[Factors], np.ndarray]
) -> np.ndarray:
    """Return the start of a deterministic method; ``at`` returns a smaller one as a vector."""

    def loss_at(factors: Factors) -> float:
        loss, slope = objective.value_and_slope(at(factors))
        return loss if is_finite(loss, slope) else math.nan

    if not start.size:  # the minimiser refuses it
        return start
    loss, slope = objective.value_and_slope(start)
    if is_finite(loss, slope):
        return start
    factors = finite_start(loss, loss_at)
    return start if factors is None else at(factors)


def with_valid_start(
    guide: Any, begin: Callable[[], Any], is_set_up: Callable[[], bool] = lambda: False
) -> Any:
    """Return what makes the parameters of a guide; from a smaller start if a value is invalid.

    A model's run at the initial locations may fail, as where ``exp`` underflows to a scale of zero.
    """
    try:
        return begin()
    except ValueError as error:
        known = hasattr(guide, "init_loc_fn") and hasattr(guide, "init_scale")
        if is_set_up() or not known or not INVALID.search(str(error)):
            raise
        failure = error
    usual = guide.init_loc_fn, guide.init_scale
    for factors in SMALLER_STARTS:
        guide.init_loc_fn = _multiplied(usual[0], factors.locations)
        guide.init_scale = usual[1] * factors.scales
        try:
            result = begin()
        except ValueError:
            if is_set_up():
                raise
            continue
        finally:
            guide.init_loc_fn, guide.init_scale = usual
        _warn(factors, "the model's distributions do not take its values")
        return result
    raise failure


def _multiplied(initial: Callable, factor: float) -> Callable:
    """Return an initialiser of a site whose values on the real line are multiplied."""

    def smaller(site: dict | None = None) -> Any:
        value = initial(site)
        if site is None or value is None:
            return value
        return value * factor if "Real()" in str(site["fn"].support) else value

    return smaller
