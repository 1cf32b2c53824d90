"""What functions of a map of few inputs add together, beyond their gains.

Units that have few inputs in common are far from independent beyond their gains: without this,
the standard deviation of a relu network 1-50-1 with a noisy input is 1.6 times the true one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    Array,
    constants,
    device,
    namespace,
    safe_scale,
    stop_gradient,
)
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.protocols import MapStep
from moment_calculus.values.step import Added

FEW_INPUTS = 16
PRODUCTS = 256  # of inputs, which the terms of the series need together, besides the first term
ORDER = 24  # largest number of factors of a product
LEAST_SHARE = 1e-6  # of the variance of the inputs of a row in the mean variance of all rows
LARGEST_RATIO = 10.0  # of a bound of what inputs explain to the scale of a unit


def of_functions(base: Gaussian, hermite: Callable[[int], Any], variance: Array) -> Added:
    """Return what f(x) adds beyond its gain, where x is a map of few inputs plus noise."""
    # Cov(f(x), f(y)) = Σ ρⁿ g_n(x) g_n(y) from the second term on, for the ρ that the inputs
    # make: 24 terms with one input, four with six, two with 16. Variances have all terms.
    inputs = few_inputs(base) if base.propagation.is_backward else None
    if inputs is None:
        return Added(variance)
    return Added(variance, lambda cotangent: _times(inputs, base, hermite, variance, cotangent))


def _times(
    inputs: _FewInputs, base: Gaussian, hermite: Any, variance: Array, cotangent: Array
) -> Array:
    xp, rest, total = namespace(variance), variance, 0.0
    orders = _orders(inputs.matrix.shape[-1])
    terms = hermite(len(orders))
    scale, rows, spread = inputs.standardised(safe_scale(base.variance))
    powers = _Powers(rows), _Powers(spread)
    for order, products in enumerate(orders[1:], start=2):
        by_unit, by_input = (power.next(products) for power in powers)
        weight = terms[order - 1] * scale**order
        counts = by_input * constants(products.counts, by_input)
        total = total + weight * (((cotangent * weight) @ by_unit * counts) @ by_unit.mT)
        own = counts @ (by_unit * by_unit).mT
        rest = rest - weight * weight * own
    return total + xp.clip(rest, min=0.0) * cotangent


@dataclass(frozen=True)
class _FewInputs:
    """The inputs of a map."""

    variance: Array  # [..., inputs]
    matrix: Array  # [units, inputs]

    def standardised(self, scale: Array) -> tuple[Array, Array, Array]:
        """Return factors of units, rows and variances, whose products are parts of correlations."""
        # All of them are near one, so that powers are finite in single precision. The sizes
        # cancel, and so do their derivatives.
        xp, batch = namespace(scale), tuple(range(self.variance.ndim - 1))
        typical = xp.mean(self.variance, axis=batch) if batch else self.variance
        typical = stop_gradient(xp.clip(typical, min=TINY_VARIANCE))
        rows, variance = self.matrix * xp.sqrt(typical), self.variance / typical
        size = stop_gradient(safe_scale(xp.max(rows * rows, axis=-1)))
        # XLA divides by the product of both divisors, which must be a float32, too.
        top = xp.clip(xp.max(variance, axis=-1, keepdims=True), min=LEAST_SHARE)
        top = stop_gradient(top)
        ratio = xp.clip(size * xp.sqrt(top) / scale, max=LARGEST_RATIO)
        rows, variance = rows / size[:, None], variance / top
        # Terms of a sum that cancel leave less variance than one of them explains.
        explained = ratio * ratio * (variance @ (rows * rows).mT)
        return ratio / xp.sqrt(xp.clip(explained, min=1.0)), rows, variance


@dataclass(frozen=True)
class _Products:
    """Products of inputs of one order, each a product of one order less and another input."""

    shorter: Sequence[int]
    last: Sequence[int]
    counts: Sequence[float]  # how often each of them stands in a power of a sum


class _Powers:
    """Products of the entries of rows, order after order from the first on."""

    def __init__(self, rows: Array) -> None:
        self.rows = self.products = rows

    def next(self, products: _Products) -> Array:
        """Return the products of one order more."""
        shorter, last = (_taken(self.products, products.shorter), _taken(self.rows, products.last))
        self.products = shorter * last
        return self.products


def _taken(rows: Array, indices: Sequence[int]) -> Array:
    xp = namespace(rows)
    return xp.take(rows, xp.asarray(np.array(indices), device=device(rows)), axis=-1)


@cache
def _orders(inputs: int) -> tuple[_Products, ...]:
    """Return products of first, second and, where they are few, higher order."""
    found, count, before = list[_Products](), 0, list[tuple[int, ...]]([()])
    for order in range(1, ORDER + 1):
        every = list(combinations_with_replacement(range(inputs), order))
        count += len(every) if order > 1 else 0
        if order > 2 and count > PRODUCTS:
            break
        indices = {product: index for index, product in enumerate(before)}
        counts = [math.factorial(order) / _repetitions(product) for product in every]
        shorter = [indices[product[:-1]] for product in every]
        found.append(_Products(shorter, [product[-1] for product in every], counts))
        before = every
    return tuple(found)


def _repetitions(product: Sequence[int]) -> int:
    return math.prod(math.factorial(times) for times in Counter(product).values())


def few_inputs(value: Gaussian) -> _FewInputs | None:
    """Return the inputs of a map behind affine maps and sums; None if it has many, or is none."""
    step = value.step
    if value.axis not in (-1, None) or value.shape[-1:] in ((), (1,)):
        return None
    if step.affine is not None:
        source, scale, _ = step.affine
        found = few_inputs(source) if source.shape == value.shape else None
        return None if found is None else _scaled(found, scale)
    if not isinstance(step, MapStep) or step.expected_map is None:
        return next(filter(None, map(few_inputs, _terms(value))), None)
    mapped, matrix = step.expected_map
    inputs, units = matrix.shape[-1], math.prod(matrix.shape[:-1])
    if mapped.axis != -1 or inputs > FEW_INPUTS or units != value.shape[-1]:
        return None  # of many inputs, or every row has a matrix of its own
    return _FewInputs(mapped.variance, namespace(matrix).reshape(matrix, (units, inputs)))


def _terms(value: Gaussian) -> Iterator[Gaussian]:
    inputs = value.step.inputs if value.step.identity else ()
    return (term for term in inputs if term.shape == value.shape)


def _scaled(inputs: _FewInputs, scale: Any) -> _FewInputs | None:
    if isinstance(scale, int | float):
        return _FewInputs(inputs.variance, inputs.matrix * scale)
    if math.prod(scale.shape[:-1]) > 1:
        return None
    factors = namespace(scale).reshape(scale, (-1, 1))
    return _FewInputs(inputs.variance, inputs.matrix * factors)
