"""Ordered classes: probabilities between cut points, which may be random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.table import Integrated
from moment_calculus.likelihoods.expectations import (
    expectation,
    expected_value,
    log_expectation,
    moments_of_observation,
)
from moment_calculus.likelihoods.links import log_sigmoids
from moment_calculus.likelihoods.location_scale import difference
from moment_calculus.likelihoods.predictions import quantile_of_mean
from moment_calculus.numerics.arrays import Array, expit, namespace
from moment_calculus.numerics.distributions import entropy_term
from moment_calculus.operations.elementwise.unary import apply, is_value
from moment_calculus.operations.shapes.coordinates import image_of, repeated_vector
from moment_calculus.operations.shapes.indexing import gather, index
from moment_calculus.operations.shapes.ordered import ORDERED
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian


def ordered_logistic(value: Array, predictor: Any, cutpoints: Any) -> Array:
    """Return E[log OrderedLogistic(value; predictor, cutpoints)] (model: McCullagh 1980).

    With consecutive cut points b < a the probability S(a − f) − S(b − f) of a class is
    S(a − f) S(f − b) (1 − e^{b − a}), so that its expected logarithm needs two softpluses
    and the gaps only. Exact for certain cut points; random ones, sums of exponentials,
    enter the softpluses as Gaussians.
    """
    xp, last = namespace(value), cutpoints.shape[-1] - 1
    lower, upper = (_cut(cutpoints, xp.clip(value - step, min=0, max=last)) for step in (1, 0))
    below, above = difference(upper, predictor), difference(predictor, lower)
    inner = (value > 0) & (value <= last)
    total = _of_gap(cutpoints, value, inner, upper, lower)
    zero = xp.zeros_like(total)
    total = total + xp.where(value <= last, expected_value(log_sigmoids(below)[0]), zero)
    return total + xp.where(value > 0, expected_value(log_sigmoids(above)[0]), zero)


def _of_gap(cutpoints: Any, value: Array, inner: Array, upper: Any, lower: Any) -> Array:
    """Return E log(1 − e^{b − a}) where a class has two cut points, else zero."""
    xp = namespace(inner)
    if not is_value(cutpoints):
        gap = xp.where(inner, upper - lower, xp.ones_like(upper))
        return xp.where(inner, xp.log(-xp.expm1(-gap)), xp.zeros_like(gap))
    expected = expected_value(apply(_LOG_OF_GAP, _coordinates(cutpoints)))
    chosen = _cut(expected, xp.clip(value, min=0, max=expected.shape[-1] - 1))
    return xp.where(inner, chosen, xp.zeros_like(chosen))


def _gap(x: Array) -> Array:
    """Return e^x, bounded where a sigmoid does not see it any more."""
    xp = namespace(x)
    return xp.exp(xp.clip(x, max=50.0))


def _log_of_gap(x: Array) -> Array:
    """Return log(1 − e^{−g}) of the gap g = e^x, which is x − g/2 + g²/24 for small ones."""
    xp = namespace(x)
    gap = _gap(x)
    small = x < -6.0
    safe = xp.where(small, xp.ones_like(gap), gap)
    return xp.where(small, x - gap / 2 + gap * gap / 24, xp.log(-xp.expm1(-safe)))


_LOG_OF_GAP = Integrated(_log_of_gap)


def _coordinates(cutpoints: Any) -> Gaussian:
    """Return the coordinates of random cut points; raise if they are no ordered vector."""
    image = image_of(cutpoints)
    if image is None or image.support != ORDERED:
        raise UnsupportedMoments(
            "random cut points that are no site with an ordered support: the gaps between them "
            "are not known to be positive",
            sites=cutpoints.sites,
            remedy="sample them as one site with an OrderedTransform, use DVIGuide, and move the "
            "predictor in place of the cut points" + OR_DRAW,
        )
    return image.coordinates


def _cut(cutpoints: Any, position: Array) -> Any:
    """Return the cut point of each row at an index."""
    if is_value(cutpoints):
        vector = repeated_vector(cutpoints)
        if len(vector.shape) == 1:
            return index(vector, (position,))
        return index(gather(vector, position[..., None], -1), (..., 0))
    xp = namespace(position)
    wide = xp.broadcast_to(cutpoints, (*position.shape, cutpoints.shape[-1]))
    return xp.take_along_axis(wide, position[..., None], axis=-1)[..., 0]


# ---------------------------------------------------------------------------------------------
# Probabilities of classes, as functions of the predictor, or of a distance and a gap


def ordered_probabilities(predictor: Any, cutpoints: Any) -> tuple[Array, Array]:
    """Return mean and variance [..., classes] of class probabilities."""
    parts = [
        moments_of_observation(share, _no_noise, *arguments)
        for share, arguments in class_probabilities(predictor, cutpoints)
    ]
    xp = namespace(parts[0][0])  # in a JAX program the cut points may be NumPy constants
    mean, variance = (xp.stack([part[i] for part in parts], axis=-1) for i in (0, 1))
    return mean / xp.sum(mean, axis=-1, keepdims=True), variance


def _no_noise(first: Array, *others: Array) -> Array:
    return 0 * first


def class_probabilities(
    predictor: Any, cutpoints: Any
) -> Iterator[tuple[Callable[..., Array], tuple[Any, ...]]]:
    """Yield for each class, in order, its probability as a function, and the arguments."""
    last = cutpoints.shape[-1] - 1
    if not is_value(cutpoints):
        cuts = [cutpoints[..., i] for i in range(last + 1)]
        for ends in zip([None, *cuts], [*cuts, None], strict=True):
            yield partial(_class_probability, *ends), (predictor,)
        return
    coordinates = _coordinates(cutpoints)
    for i in range(last + 2):
        distance = difference(_entry(cutpoints, min(i, last), predictor), predictor)
        if 0 < i <= last:
            yield _inner_probability, (distance, _entry(coordinates, i, predictor))
        else:
            yield (expit if i == 0 else _last_probability), (distance,)


def _entry(vector: Gaussian, position: int, like: Any) -> Any:
    """Return one component of a vector for every row."""
    return broadcast(index(repeated_vector(vector), (..., position)), tuple(like.shape))


def _inner_probability(distance: Array, coordinate: Array) -> Array:
    """Return S(a − f) S(f − b) (1 − e^{b − a}) from a − f and the logarithm of a − b."""
    gap = _gap(coordinate)
    return expit(distance) * expit(gap - distance) * -namespace(gap).expm1(-gap)


def _last_probability(distance: Array) -> Array:
    return expit(-distance)


def _class_probability(lower: Any, upper: Any, f: Array) -> Array:
    """Return a class's probability between two cut points; None is infinite."""
    if upper is None:
        return expit(f - lower)
    below = expit(upper - f)
    return below if lower is None else below * expit(f - lower) * -namespace(f).expm1(lower - upper)


def tempered_ordered_logistic(power: Any, value: Array, predictor: Any, cutpoints: Any) -> Array:
    """Return (1/a) log E[OrderedLogistic(value; predictor, cutpoints)ᵃ]."""
    if is_value(cutpoints):
        return _tempered_with_random_cuts(power, value, predictor, cutpoints)

    def density(value: Array, predictor: Array) -> Array:
        return ordered_logistic(value, predictor, cutpoints)

    return log_expectation(density, value, predictor, power=power, sharp=False)


def _tempered_with_random_cuts(
    power: Any, value: Array, predictor: Any, cutpoints: Gaussian
) -> Array:
    xp, last = namespace(value), cutpoints.shape[-1] - 1
    upper = _cut(cutpoints, xp.clip(value, min=0, max=last))
    coordinate = _cut(_coordinates(cutpoints), xp.clip(value, min=min(1, last), max=last))

    def density(value: Array, distance: Array, coordinate: Array) -> Array:
        first, final = value == 0, value > last
        gap = _gap(coordinate)
        above = xp.where(final, -distance, xp.where(first, 0 * distance, gap - distance))
        total = xp.where(first, 0.0, log_sigmoids(above)[0])
        total = total + xp.where(final, 0.0, log_sigmoids(distance)[0])
        return total + xp.where(first | final, 0.0, _log_of_gap(coordinate))

    distance = difference(upper, predictor)
    return log_expectation(density, value, distance, coordinate, power=power, sharp=False)


def ordered_entropy(predictor: Any, cutpoints: Any) -> Array:
    """Return E[H] of an ordered logistic likelihood, by quadrature."""
    if is_value(cutpoints):
        shares = class_probabilities(predictor, cutpoints)
        return sum(
            expectation(lambda *at, share=share: entropy_term(share(*at)), *arguments)
            for share, arguments in shares
        )
    functions = [share for share, _ in class_probabilities(predictor, cutpoints)]
    knots = tuple(cutpoints[..., i] for i in range(cutpoints.shape[-1]))
    return expectation(
        lambda f: sum(entropy_term(share(f)) for share in functions), predictor, knots=knots
    )


def quantile_of_ordered(predictor: Any, cutpoints: Any, levels: np.ndarray) -> Array:
    """Return quantiles [levels, ..., classes] of class probabilities."""
    shares = class_probabilities(predictor, cutpoints)
    parts = [quantile_of_mean(share, list(arguments), levels) for share, arguments in shares]
    return namespace(parts[0]).stack(parts, axis=-1)
