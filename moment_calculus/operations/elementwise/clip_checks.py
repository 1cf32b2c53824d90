"""Reject singular functions of clipped values of which only the moments are known.

A sum of squares, absolute values or exponentials is positive, but the Gaussian with its
moments has mass below zero. A clip gathers this mass at its level ε, where ε^(−½), 1/ε
and log ε are huge: E (max(q, 0) + 1e-6)^(−½) of the sum q of two squares was 110 standard
deviations off.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.combinators import Composed, Fused
from moment_calculus.functions.families.piecewise import PiecewiseLinear
from moment_calculus.functions.recognition_policy import RecognitionPolicy
from moment_calculus.functions.table import ReLU
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.deferred import unscaled
from moment_calculus.values.gaussian import Gaussian

HARMLESS = 1.0  # above this level x^(−p), √x and log x are no steeper than the clip itself


def check_not_clipped(value: Any, what: str) -> None:
    """Raise UnsupportedMoments for a power or logarithm of a clip with inexact moments."""
    # A clip of a value that is linear in the latent sites has exact moments.
    if value.bounds.low >= HARMLESS or not _is_clipped(value) or is_linear(value.base):
        return
    raise UnsupportedMoments(
        f"{what} of a value that is clipped at {value.bounds.low:g} and known by its mean and "
        "variance only: its distribution is not Gaussian, and a Gaussian is far off close to the "
        "clip, where the function is steep",
        sites=value.sites,
        remedy="make one latent Gaussian, or a linear map of some, positive by exp or softplus, or "
        "draw the sites by naming them in sample_sites=",
    )


def _is_clipped(value: Any) -> bool:
    """Whether a function of its base is constant below some level, with a corner there."""
    return _has_corner(value.function, value.policy)


def _has_corner(function: Any, policy: RecognitionPolicy) -> bool:
    function = unscaled(function)
    if isinstance(function, Composed):
        return _is_clip(function.outer) or _has_corner(function.inner, policy)
    if isinstance(function, Fused) and function.recognised_function is function:
        return any(_has_corner(part, policy) for part in function.parts)
    return _is_clip(policy.recognised_function(function))


def _is_clip(function: Any) -> bool:
    flat = isinstance(function, PiecewiseLinear) and function.slopes[0] == 0
    return flat or isinstance(function, ReLU)


def is_linear(value: Gaussian) -> bool:
    """Whether a value is a linear map of latent sites, or of the user's own inputs."""
    return not any(ancestor.step.nonlinear for ancestor in ancestors(value))
