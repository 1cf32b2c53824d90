"""A value under the weight e^{rx} of a Gaussian number x, as the square of a residual has it.

Under that weight everything that is jointly Gaussian with x is shifted by r times its covariance
with x, and keeps its covariances; what is no linear function of that is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.covariances import cross_covariance
from moment_calculus.values.elementwise import affine
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.spread import from_features_last, overlap


def under_weight(value: Gaussian, number: Gaussian, rate: float) -> Gaussian | None:
    """Return a value under e^{rate · number}; None where that is unknown, or only shifts it."""
    if math.prod(number.shape) > 1 or not overlap(value, number):
        return None
    family = sorted([*ancestors(value)], key=lambda part: part.serial)
    straight = _straight(family)
    if straight[value.serial] or not _is_straight(number):
        return None
    found: dict[int, Gaussian] = {}
    for part in family:
        if straight[part.serial] and not _is_met(part, family, straight):
            continue
        weighted = _shifted(part, number, rate) if straight[part.serial] else _again(part, found)
        if weighted is None:
            return None
        found[part.serial] = weighted
    return found[value.serial]


def _straight(family: Iterable[Gaussian]) -> dict[int, bool]:
    """Return which values are linear in latent Gaussians; inputs come before what they make."""
    found: dict[int, bool] = {}
    for part in family:
        inputs = (found[source.serial] for source in part.step.inputs)
        found[part.serial] = not part.step.factors(part) and all(inputs)
    return found


def _is_straight(value: Gaussian) -> bool:
    family = sorted([*ancestors(value)], key=lambda part: part.serial)
    return _straight(family)[value.serial]


def _is_met(part: Gaussian, family: Iterable[Gaussian], straight: Mapping[int, bool]) -> bool:
    """Whether a value that is not linear was computed from this one."""
    return any(
        not straight[other.serial] and any(source is part for source in other.step.inputs)
        for other in family
    )


def _shifted(part: Gaussian, number: Gaussian, rate: float) -> Gaussian | None:
    if not overlap(part, number):
        return part
    cross = cross_covariance(part, number)
    if cross is None or cross.shape[-1] != 1:
        return None
    return affine(part, 1.0, rate * from_features_last(cross[..., 0], part.axis))


def _again(part: Gaussian, found: Mapping[int, Gaussian]) -> Gaussian | None:
    """Return a value that is computed from weighted inputs."""
    inputs = tuple(found[source.serial] for source in part.step.inputs)
    if all(one is other for one, other in zip(inputs, part.step.inputs, strict=True)):
        return part
    return part.step.again(part, inputs)
