"""Draws of a corrected posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.criticism.containers.draws import Approximation, WithoutDensity
from moment_calculus.response.response import Response


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
