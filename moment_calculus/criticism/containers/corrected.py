"""Draw from a linear-response posterior, and resample approximate draws by importance weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.criticism.containers.draws import (
    Approximation,
    Arrays,
    Draws,
    Resampled,
    WithoutDensity,
)
from moment_calculus.criticism.containers.leave_one_out import without_density
from moment_calculus.numerics.pareto import checked_ratios, smoothed
from moment_calculus.response.response import FEWEST, TWICE, Response
from moment_calculus.response.wording import check_reliable


def drawn(
    response: Response, generator: np.random.Generator, count: int
) -> tuple[dict[str, Any], Approximation | WithoutDensity]:
    """Draw sites [count, ...] from the corrected posterior, with log q where it can be computed."""
    try:
        values, density = response.weighted_draws(generator, count)
    except ValueError as refusal:
        return response.plain_draws(generator, count), WithoutDensity(str(refusal))
    return values, Approximation(density[None])


def proposals(count: int) -> int:
    """Return the number of proposals from which ``count`` draws are resampled."""
    return max(TWICE * count, FEWEST)


def resampled(
    draws: Draws,
    log_joint: Callable[[Arrays], np.ndarray],  # from flat draws by site to log p [draws]
    generator: np.random.Generator,
    count: int,
) -> Draws:
    """Resample ``count`` draws, with replacement, by Pareto-smoothed importance weights p / q."""
    if isinstance(draws.law, WithoutDensity):
        raise without_density(draws.law.reason)
    if not isinstance(draws.law, Approximation):
        raise ValueError(
            f"draws of {draws.source} are of the posterior itself: importance_weights is for "
            "draws of a guide or of linear response"
        )
    ratios = log_joint(draws.flat) - draws.law.log_density.ravel()
    weights = smoothed(checked_ratios(ratios))
    check_reliable(weights, draws.source, draws.values)
    places = weights.places(generator, count)
    values = {name: value[places][None] for name, value in draws.flat.items()}
    return Draws(f"{draws.source}, resampled", values, Resampled(str(weights)))
