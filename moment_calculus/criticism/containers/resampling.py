"""Draw from a linear-response posterior, and resample approximate draws by importance weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.criticism.containers.draws import (
    Arrays,
    Draws,
    FromApproximation,
    FromResampling,
    NoDensity,
)
from moment_calculus.criticism.containers.leave_one_out import no_density_error
from moment_calculus.numerics.pareto import check_ratios, smooth_weights
from moment_calculus.response.errors import check_reliable
from moment_calculus.response.response import MIN_PROPOSALS, PROPOSALS_PER_DRAW, Response


def draw_response(
    response: Response, generator: np.random.Generator, count: int
) -> tuple[dict[str, Any], FromApproximation | NoDensity]:
    """Draw sites [count, ...] from the corrected posterior, with log q where it can be computed."""
    try:
        values, density = response.weighted_draws(generator, count)
    except ValueError as error:
        return response.plain_draws(generator, count), NoDensity(str(error))
    return values, FromApproximation(density[None])


def proposal_count(count: int) -> int:
    """Return the number of proposals from which ``count`` draws are resampled."""
    return max(PROPOSALS_PER_DRAW * count, MIN_PROPOSALS)


def resample(
    draws: Draws,
    log_joint: Callable[[Arrays], np.ndarray],  # from flat draws by site to log p [draws]
    generator: np.random.Generator,
    count: int,
) -> Draws:
    """Resample ``count`` draws, with replacement, by Pareto-smoothed importance weights p / q."""
    if isinstance(draws.origin, NoDensity):
        raise no_density_error(draws.origin.reason)
    if not isinstance(draws.origin, FromApproximation):
        raise ValueError(
            f"draws of {draws.source} are of the posterior itself: importance_weights is for "
            "draws of a guide or of linear response"
        )
    ratios = log_joint(draws.flat) - draws.origin.log_density.ravel()
    weights = smooth_weights(check_ratios(ratios))
    check_reliable(weights, draws.source, draws.values)
    places = weights.resample_indices(generator, count)
    values = {name: value[places][None] for name, value in draws.flat.items()}
    return Draws(f"{draws.source}, resampled", values, FromResampling(str(weights)))
