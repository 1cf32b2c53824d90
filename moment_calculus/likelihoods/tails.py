"""Tails of exponentials of a layer over rectified units, which its Gaussian does not have.

An output with random weights, t = Σ w_j h_j + rest, is matched by a Gaussian elsewhere. Given
the units it is one, so that E exp(t) is a product over independent units of E exp(μ_j h_j + ½
σ_j² h_j²), and under that weight another output has sums over units as its mean and variance.
Measured for networks of one hidden layer: the expected log density is exact, where that of a
Gaussian was off by up to 8 %.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.numerics.tilted_rectifier import tilted_rectifier
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.operations.shapes.reshaping import Expanded
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import EXACT
from moment_calculus.values.spread import overlap


class Output(NamedTuple):
    """A linear function of the outputs of a layer, row by row."""

    layer: Gaussian
    units: Gaussian  # hidden
    matrix: Gaussian  # that maps them, [outputs, units]
    coefficients: Array  # [*rows, outputs]
    chosen: range  # outputs that may have a coefficient other than zero
    has_outputs: bool = True  # whether the features of the value are the outputs, one by one

    def weights(self) -> tuple[Array, Array]:
        """Return the mean and the variance of what the units are multiplied by, [*rows, units]."""
        squared = self.coefficients * self.coefficients
        return self.coefficients @ self.matrix.mean, squared @ self.matrix.variance


class Tail(NamedTuple):
    """What the moments of units add to those of a Gaussian pair (t, d) under the weight exp(t)."""

    log_mass: Any  # of log E exp(t)
    mean: Any  # of the mean of d
    variance: Any  # of its variance


NONE = Tail(0.0, 0.0, 0.0)


def tail_of(exponent: Gaussian, other: Any, rate: float = 1.0) -> Tail:
    """Return the tail of t = rate · exponent, and of another output d under exp(t).

    Nothing is added where the exponent is no such output of a first layer of rectified
    units, or where the other value depends on it in another way.
    """
    head = output_of(exponent)
    if head is None or not _are_independent_rectified(head.units):
        return NONE
    if not isinstance(other, Gaussian) or not overlap(other, exponent):
        return _tail(head, None, rate)
    second = output_of(other)
    if second is None or second.units is not head.units:
        return NONE
    if second.layer is not head.layer and overlap(second.matrix, head.matrix):
        return NONE
    return _tail(head, second, rate)


def _tail(head: Output, other: Output | None, rate: float) -> Tail:
    assert head.units.step.function is not None
    base, xp = head.units.step.function[0], namespace(head.coefficients)
    mean, variance = head.weights()
    slope, curvature = rate * mean, rate * rate * variance
    shared = None if other is None else _shared_variance(head, other, rate)
    moments = base.mean, base.variance, slope, curvature
    mass, tilted = tilted_rectifier(*moments, order=2 if shared is None else 4)
    first, spread = head.units.mean, head.units.variance
    second = spread + first * first
    log_mass = xp.sum(
        mass - slope * first - 0.5 * (slope * slope * spread + curvature * second), axis=-1
    )
    if other is None:
        return Tail(log_mass, 0.0, 0.0)
    weight, noise = other.weights()
    centre, squared = weight * tilted[0], weight * weight * tilted[1]
    gaussian = weight * (first + slope * spread)
    if shared is not None:
        centre, gaussian = centre + shared * tilted[1], gaussian + shared * second
        squared = squared + shared * (2 * weight * tilted[2] + shared * tilted[3])
    change = squared - centre * centre - weight * weight * spread + noise * (tilted[1] - second)
    return Tail(log_mass, xp.sum(centre - gaussian, axis=-1), xp.sum(change, axis=-1))


def _shared_variance(head: Output, other: Output, rate: float) -> Array | None:
    """Return the covariance of what multiplies the units in both; None if there is none."""
    if other.layer is not head.layer or not set(head.chosen) & set(other.chosen):
        return None
    both = rate * head.coefficients * other.coefficients
    return both @ head.matrix.variance


def output_of(value: Gaussian) -> Output | None:
    """Return a value as a function of the outputs of a layer with random weights, if it is one."""
    ones = namespace(value.mean).ones_like(value.mean)[None]
    return _pulled(value, ones, tuple(range(1 - ones.ndim, 0)))


def _pulled(value: Gaussian, cotangent: Array, axes: tuple) -> Output | None:
    """Follow a value back to its layer, with the rows on the same axes of each value."""
    step, shape = value.step, value.mean.shape
    if tuple(cotangent.shape[1:]) != tuple(shape):
        return None
    if isinstance(step, LinearMap):
        in_place = axes == tuple(range(-len(shape), -1)) and _has_own_weights(step)
        return _output(value, step, cotangent[0], range(shape[-1])) if in_place else None
    return _pulled_through(value, cotangent, axes) if _is_linear(value) else None


def _output(layer: Gaussian, step: LinearMap, coefficients: Array, chosen: range) -> Output:
    assert step.mapped is not None
    return Output(layer, step.mapped, step.random_matrix, coefficients, chosen)


def _pulled_through(value: Gaussian, cotangent: Array, axes: tuple) -> Output | None:
    """Follow the inputs of a linear step back, to one layer; others may not depend on it."""
    step, ends, others = value.step, list[Output](), list[Gaussian]()
    for input_index, source in enumerate(step.inputs):
        moved = tuple([step.same_rows(value, input_index, axis) for axis in axes])
        pulled = None if None in moved else step.pull(value, input_index, cotangent)
        end = None if pulled is None else _pulled(source, pulled, moved)
        if end is None:
            others.append(source)
        else:
            ends.append(end)
    if not ends or (others and any([overlap(part, ends[0].layer) for part in others])):
        return None
    if len(ends) == 1:
        return _selected(value, ends[0])
    if any([end.layer is not ends[0].layer for end in ends]):
        return None
    total = sum([end.coefficients for end in ends[1:]], start=ends[0].coefficients)
    outputs = range(ends[0].layer.shape[-1])
    return ends[0]._replace(coefficients=total, chosen=outputs, has_outputs=False)


def _selected(value: Gaussian, end: Output) -> Output:
    """Return an output that knows which ones a step selects."""
    key = getattr(value.step, "key", None)
    if end.has_outputs and isinstance(key, int | slice):
        key = slice(key, key + 1 or None) if isinstance(key, int) else key
        return end._replace(chosen=end.chosen[key], has_outputs=False)
    same = value.step.identity or value.step.componentwise
    whole = same and value.mean.shape == end.layer.mean.shape
    return end if whole else end._replace(has_outputs=False)


def _is_linear(value: Gaussian) -> bool:
    """Return whether a value is linear in what it was computed from."""
    step = value.step
    return step.identity or step.affine is not None or not step.factors(value)


def _has_own_weights(step: LinearMap) -> bool:
    """Return whether a layer maps random units by one matrix that shares nothing with them."""
    if step.mapped is None or not _has_independent_weights(step):
        return False
    weight, bias = step.random_matrix, step.bias
    plain = not isinstance(bias, Gaussian) or not overlap(bias, weight)
    return plain and not overlap(step.mapped, weight)


def _has_independent_weights(step: LinearMap) -> bool:
    """Return whether a layer has one random matrix, whose elements are independent."""
    weight = step.random_matrix
    one = weight is not None and weight.mean.ndim == 2 and weight.independent
    return one and step.noise.off_diagonals == ()


def _are_independent_rectified(units: Gaussian) -> bool:
    """Return whether units are exact rectifiers of a layer that maps certain inputs."""
    if units.step.function is None or units.axis != -1:
        return False
    base, function = units.step.function
    exact = units.propagation.rulebook is EXACT and function.name == "relu"
    return exact and _maps_certain_inputs(base)


def _maps_certain_inputs(value: Gaussian, units: int | None = None) -> bool:
    """Return whether the features of a value are independent: sums of what weights of theirs do."""
    step, shape = value.step, value.mean.shape
    units = units or shape[-1]
    if value.axis != -1 or shape[-1] != units:  # one for all units, say
        return False
    if isinstance(step, LinearMap):
        return step.mapped is None and _has_independent_weights(step)
    if not step.inputs:
        return value.independent
    in_place = step.identity or step.affine is not None or isinstance(step, Expanded)
    return in_place and all(_maps_certain_inputs(source, units) for source in step.inputs)
