"""Draws of a corrected posterior, and draws that importance weights correct."""

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
    """Draws of a corrected posterior, with their density unless that takes too much.

    Args:
        response: the linear response.
        generator: of NumPy.
        count: how many.

    Returns:
        Arrays of the host [count, ...] by site, and what is known of their distribution.
    """
    try:
        values, density = response.weighted_draws(generator, count)
    except ValueError as refusal:
        return response.plain_draws(generator, count), WithoutDensity(str(refusal))
    return values, Approximation(density[None])


def proposals(count: int) -> int:
    """How many draws are proposed for some that are resampled.

    Args:
        count: of these.
    """
    return max(TWICE * count, FEWEST)


def resampled(
    draws: Draws,
    log_joint: Callable[[Arrays], np.ndarray],
    generator: np.random.Generator,
    count: int,
) -> Draws:
    """Draws of the posterior, as far as importance weights make them so of an approximation's.

    Args:
        draws: of the approximation.
        log_joint: log density of draws and observations together, from flat draws by site.
        generator: of NumPy.
        count: how many, with replacement.

    Raises:
        ValueError: if the draws have no density, or are of the posterior itself.
        UnsupportedMoments: if the weights cannot be trusted.
    """
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
