"""The scale of Normal noise by type-II maximum likelihood, from derivatives of the loss.

A loss with Normal noise of the scale σ = σ₀ eᵗ is K + W t + ½ S e^{−2t}, where W is the
number of observed elements and S = Σ E(y − f)² / σ₀², each weighted as its site is. So
slope and curvature at t = 0 tell both, and the minimum is at e^{2t} = S / W.

Source: Haussmann et al. 2019, equation 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Array = Any
MODES = (None, "type-II", "profile")
TOLERANCE = 1e-3  # relative, of the third derivative, which is −2 times the second one


def best_variance(slope: Array, curvature: Array) -> Array:
    """Return e^{2t} at the t at which the loss is least."""
    return curvature / 2 / (slope + curvature / 2)


def profiled(log: Callable[[Array], Array], loss: Array, slope: Array, curvature: Array) -> Array:
    """Return the least loss over t."""
    return loss + (slope + (slope + curvature / 2) * log(best_variance(slope, curvature))) / 2


def scale_of_noise(derivatives: Mapping[str, Iterable[float]], *, framework: str) -> str:
    """Return which parameter of one number is the scale of Normal noise.

    ``derivatives`` are slope, curvature and third derivative of the loss by the logarithm
    of each parameter. Raises ValueError unless there is one such parameter.
    """
    names = [name for name, parts in derivatives.items() if _is_scale(*parts)]
    if len(names) == 1:
        return names[0]
    if names:
        raise ValueError(
            f"precision=... takes the one scale of Normal noise, and the parameters "
            f"{', '.join(names)} enter the loss as scales of Normal distributions: make the others "
            "numbers, or give them a prior"
        )
    raise ValueError(
        "precision=... needs an ELBO, and the scale of its Normal noise as a parameter of the "
        f"model, which is one number; its positive ones, {', '.join(derivatives) or 'none'}, are "
        f"no such scale: sigma = {framework}.param('sigma', ..., constraint=constraints.positive), "
        "and Normal(f, sigma)"
    )


def _is_scale(slope: float, curvature: float, third: float) -> bool:
    off = abs(third + 2 * curvature)
    return curvature > 0 and slope + curvature / 2 > 0 and off <= TOLERANCE * curvature
