"""Dependence between live values: their cross-covariance, by the graph of expected Jacobians.

The newer of two values is expanded into its parents until a common ancestor is reached. A product
adds the covariance of its second-order term with the products that are not among its ancestors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

from moment_calculus.functions.pairs.completion import Operand, alike, integrated
from moment_calculus.numerics.arrays import Array, device, diagonal, diagonal_matrix, transpose
from moment_calculus.numerics.special import namespace, safe_scale
from moment_calculus.values.entries import covariance_of_components, variance_of_common
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.keys import alike_keys, same_element
from moment_calculus.values.layout import batch_shape, features_last, from_features_last
from moment_calculus.values.support import overlap

Picked = tuple[Gaussian, tuple]


def share_sites(*values: Any) -> frozenset[str]:
    """Latent sites on which at least two of the values depend."""
    return frozenset().union(*(overlap(*pair) for pair in combinations(values, 2)))


def cross_covariance(left: Gaussian, right: Gaussian) -> Array | None:
    """Covariance of the components of two live values, element of the batch by element.

    Exact, for jointly Gaussian inputs of every step, where the steps between the values are linear,
    products of Gaussians, one activation (Stein's lemma), or one activation on either side
    (:mod:`moment_calculus.functions.pairs.completion`). In diagonal mode the inputs of a linear map
    enter as independent, as in its variance.

    Args:
        left: a value with features d.
        right: a value with features e and a batch shape that broadcasts with the left one's.

    Returns:
        ``batch + [d, e]``; a zero of shape [1, 1] if the values share no latent site; None if the
        joint moments are not known.
    """
    return _Graph().cross(left, right)


def cross_covariances() -> Callable[[Gaussian, Gaussian], Array | None]:
    """:func:`cross_covariance` of many pairs: what they have in common is computed once."""
    return _Graph().cross


class _Graph:
    """One query: every pair of values is visited once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, bool], Array | None] = {}
        self.quadratic: dict[tuple[int, int], Array | float | None] = {}
        self.lineages: dict[int, set[int]] = {}

    def cross(self, left: Gaussian, right: Gaussian, mixed: bool = False) -> Array | None:
        """Covariance; ``mixed`` once the features entered a map as independent."""
        if left is right:
            return _marginal(left) if mixed else left.joint_covariance()
        if left.serial < right.serial:
            swapped = self.cross(right, left, mixed)
            return None if swapped is None else transpose(swapped)
        key = (left.serial, right.serial, mixed)
        if key not in self.known:
            self.known[key] = self._expand(left, right, mixed)
        return self.known[key]

    def _expand(self, left: Gaussian, right: Gaussian, mixed: bool) -> Array | None:
        if not overlap(left, right):
            like = left.mean
            return namespace(like).zeros((1, 1), dtype=like.dtype, device=device(like))
        known = covariance_of_components(left, right)
        return self._by_steps(left, right, mixed) if known is None else known

    def _by_steps(self, left: Gaussian, right: Gaussian, mixed: bool) -> Array | None:
        if left.function and not self.precedes(right, left):
            # both are functions, or the older can be traced back to one by exact steps
            if right.function:
                return self._functions(left, right, mixed)
            if right.parents and not right.components:
                return self._swapped(left, right, mixed)
        by_older = self._swapped(left, right, mixed) if left.components else None
        if by_older is not None:
            return by_older
        if left.picked:
            return self._picked(left, right, mixed, *left.picked)
        return self._by_parents(left, right, mixed)

    def _swapped(self, left: Gaussian, right: Gaussian, mixed: bool) -> Array | None:
        """The older value expanded into its parents."""
        swapped = self._by_parents(right, left, mixed)
        return None if swapped is None else transpose(swapped)

    def _picked(
        self, left: Gaussian, right: Gaussian, mixed: bool, source: Gaussian, keys: tuple
    ) -> Array | None:
        """Covariance of elements that were picked from a batch with another value."""
        batch = batch_shape(source.shape, source.axis)
        if right.picked:
            ordered = left.apart and right.apart
            return self._both_picked((source, keys), right.picked, mixed, ordered=ordered)
        if math.prod(batch_shape(right.shape, right.axis)) == 1:  # the same for every element
            return _chosen(self.cross(source, right, mixed), batch, keys)
        linear = right.parents and not right.function and not right.factors
        if not linear or self.precedes(right, left):
            return None
        return self._swapped(left, right, mixed)

    def _both_picked(
        self, left: Picked, right: Picked, mixed: bool, *, ordered: bool
    ) -> Array | None:
        """Elements ``ordered`` on both sides are said to be apart, whatever they are added to."""
        (source, keys), (other, other_keys) = left, right
        batch = batch_shape(source.shape, source.axis)
        if batch != batch_shape(other.shape, other.axis):
            return None
        if alike_keys(keys, other_keys):
            return _chosen(self.cross(source, other, mixed), batch, keys)
        apart = source.apart and other.apart and source.origin is other.origin
        same = same_element(keys, other_keys) if apart and not ordered else None
        if same is None:
            return None
        found = _chosen(self.cross(source, other, mixed), batch, keys)
        return None if found is None else found * same[..., None, None]

    def _functions(self, left: Gaussian, right: Gaussian, mixed: bool) -> Array | None:
        """Cov(f(x), g(y)) for Gaussian x and y."""
        cross = self.cross(left.function[0], right.function[0], mixed)
        if cross is None:
            return None
        return integrated(_operand(left), _operand(right), cross, _order(left))

    def _by_parents(self, left: Gaussian, right: Gaussian, mixed: bool) -> Array | None:
        """The left value expanded into its parents."""
        if not left.parents:
            return None
        total: Any = self._second_order(left, right) if left.factors else 0.0
        for parent, jacobian in left.parents if total is not None else ():
            if not overlap(parent, right):
                continue
            if jacobian is None:
                return None
            cross = self.cross(parent, right, mixed or left.mixes)
            term = None if cross is None else jacobian(cross)
            if term is None:
                return None
            total = total + term
        return total

    def _second_order(self, left: Gaussian, right: Gaussian) -> Array | float | None:
        """Covariance of (x − E x)(y − E y), where left = x·y, with ``right``."""
        key = (left.serial, right.serial)
        if key not in self.quadratic:
            self.quadratic[key] = 0.0 if self.precedes(right, left) else self._pairs(left, right)
        return self.quadratic[key]

    def _pairs(self, left: Gaussian, right: Gaussian) -> Array | float | None:
        total: Any = self._isserlis(left.factors, right.factors) if right.factors else 0.0
        for parent, jacobian in right.parents if total is not None else ():
            if not overlap(parent, left):
                continue
            part = self._second_order(left, parent)
            if isinstance(part, float):
                continue
            term = None if part is None or jacobian is None else jacobian(transpose(part))
            if term is None:
                return None
            total = total + transpose(term)
        return total

    def _isserlis(self, left: Any, right: Any) -> Array | None:
        """C_xu C_yv + C_xv C_yu for the factors x, y and u, v of two products."""
        (x, y), (u, v) = left, right
        xu, yv, xv, yu = (self.cross(a, b) for a, b in ((x, u), (y, v), (x, v), (y, u)))
        if xu is None or yv is None or xv is None or yu is None:
            return None
        return xu * yv + xv * yu

    def precedes(self, value: Gaussian, product: Gaussian) -> bool:
        """Whether a value is an ancestor of a product, so jointly Gaussian with its factors."""
        if product.serial not in self.lineages:
            self.lineages[product.serial] = _lineage(product)
        return value.serial in self.lineages[product.serial]


def _chosen(cross: Array | None, batch: tuple[int, ...], keys: tuple) -> Array | None:
    """The covariances of the picked elements."""
    if cross is None:
        return None
    while len(cross.shape) > len(batch) + 2 and cross.shape[0] == 1:
        cross = cross[0]
    return namespace(cross).broadcast_to(cross, (*batch, *cross.shape[-2:]))[keys]


def _operand(value: Gaussian) -> Operand:
    base, activation = value.function
    return Operand(
        activation, base.mean, base.variance, lambda array: features_last(array, base.axis)
    )


def _order(value: Gaussian) -> int:
    return value.propagation.rulebook.mehler_order


def _lineage(value: Gaussian) -> set[int]:
    seen: set[int] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current.serial not in seen:
            seen.add(current.serial)
            stack.extend(parent for parent, _ in current.parents)
    return seen


def _marginal(value: Gaussian) -> Array:
    return diagonal_matrix(features_last(value.variance, value.axis))


def elementwise_covariance(left: Gaussian, right: Gaussian) -> Array | float | None:
    """Covariance of each component of one value with the same component of another.

    In diagonal mode, where the variances leave correlations out that the cross-covariance may
    have seen, it is kept within the product of the standard deviations.

    Args:
        left: a value.
        right: a value of the same shape and feature axis.

    Returns:
        Array that broadcasts to that shape; 0.0 if the values share no latent site; None if it is
        not known.
    """
    if not overlap(left, right):
        return 0.0
    if left is right:
        return left.variance
    elementwise = _of_each(left, right) if left.axis == right.axis else None
    if elementwise is None:
        return None
    exact = left.propagation.full or isinstance(elementwise, float)
    return elementwise if exact else _within(elementwise, left, right)


def _of_each(left: Gaussian, right: Gaussian) -> Array | float | None:
    """The diagonal of the cross-covariance; where that can be, no more than it is computed."""
    common = variance_of_common(left, right)
    if common is not None:
        return common
    for value, other in ((left, right), (right, left)):
        known = value.each(other) if value.each else None
        if known is not None:
            return known
    graph = _Graph()
    newer, older = (left, right) if left.serial > right.serial else (right, left)
    if not (newer.function and older.function) or graph.precedes(older, newer):
        cross = graph.cross(left, right)
        return None if cross is None else from_features_last(diagonal(cross), left.axis)
    cross = graph.cross(left.function[0], right.function[0])
    if cross is None:
        return None
    operands = _operand(left), _operand(right)
    each = integrated(*operands, diagonal(cross), _order(left), alike)
    return from_features_last(each, left.axis)


def _within(covariance: Array, left: Gaussian, right: Gaussian) -> Array:
    bound = safe_scale(left.variance) * safe_scale(right.variance)
    xp = namespace(bound)
    return xp.maximum(xp.minimum(covariance, bound), -bound)
