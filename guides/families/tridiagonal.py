"""Compute with chains of Normals whose neighbours are correlated (tridiagonal covariance), in O(n).

A chain is w_j = m_j + a_j u_j with signed scales a_j and a standard normal u whose
neighbours have correlation ρ. The lower factor of its correlation matrix R has b_j on the
diagonal, ρ/b_j below it, b_j² = (1 − q^{j+1})/((1 − q^j)(1 + q)), q = s², ρ = s/(1 + s²).
R is positive definite for all n if
|ρ| < ½. Source: Posch and Pilz 2020 (scales τ m_j).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.operations.linear.tridiagonal import tridiagonal_site
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation

BLOCK = 64  # elements in one matrix product of a recursion
HEAD = 65_536  # b is constant after so many: to 1e-12 for |ρ| < ½ − 1e-8, else to 1e-5


def geometric_ratio(correlation: Array) -> Array:
    """Return the s in (−1, 1) with ρ = s/(1 + s²), for ρ in (−½, ½)."""
    xp = namespace(correlation)
    eps = float(xp.finfo(correlation.dtype).eps)
    rest = xp.clip(1 - 4 * correlation * correlation, min=4 * eps)  # |s| stays below one
    return 2 * correlation / (1 + xp.sqrt(rest))


def bound(size: int) -> float:
    """Return the |ρ| from which on a chain of n = size elements is not positive definite."""
    return 1 / (2 * math.cos(math.pi / (size + 1))) if size > 1 else math.inf


def sample(loc: Array, scale: Array, correlation: Array, noise: Array) -> Array:
    """Return reparameterised draws [..., n] from standard normal noise [..., n]."""
    return loc + scale * _standard(noise, correlation)


def _standard(noise: Array, correlation: Array) -> Array:
    """Return L z, a standard chain, for the lower factor L and standard normal z."""
    xp, (scales, below) = namespace(noise), factor(noise.shape[-1], correlation)
    shifted = below * noise[..., :-1]
    first = xp.zeros_like(noise[..., :1])
    return scales * noise + xp.concat([first, shifted], axis=-1)


def factor(size: int, correlation: Array) -> tuple[Array, Array]:
    """Return the diagonal b [n] of the lower factor L, and the entries ρ/b [n − 1] below it."""
    diagonal = _diagonal(_geometric_sums(min(size, HEAD) + 1, correlation), correlation)
    diagonal = _padded(diagonal, size)
    return diagonal, correlation / diagonal[:-1]


def _diagonal(weights: Array, correlation: Array) -> Array:
    """Return b_j for j = 1 … n from g_j for j = 1 … n + 1."""
    s = geometric_ratio(correlation)
    return namespace(weights).sqrt(weights[1:] / weights[:-1] / (1 + s * s))


def _geometric_sums(size: int, correlation: Array) -> Array:
    """Return g_j = (1 − q^j)/(1 − q) for j = 1 … n, with derivatives of all orders at q = 0."""
    xp, (low, high) = namespace(correlation), _clip_below_and_above(correlation)
    powers = _powers(min(size, BLOCK) + 1, low)[1:]  # higher powers are below rounding
    zeros = xp.zeros_like(powers[:1])
    small = (1 - _padded(xp.concat([powers, zeros]), size)[:size]) / (1 - low)
    places = xp.arange(1, size + 1, dtype=correlation.dtype, device=device(correlation))
    large = xp.expm1(places * xp.log(high)) / xp.expm1(xp.log(high))
    return xp.where(geometric_ratio(correlation) ** 2 < 0.5, small, large)


def _clip_below_and_above(correlation: Array) -> tuple[Array, Array]:
    """Return q clipped to at most ½, and to at least ½, for the two forms of 1 − q^j."""
    # Below ½ high powers of q vanish; above, 1 − q^j has to be an expm1, or it would
    # cancel.
    xp, q = namespace(correlation), geometric_ratio(correlation) ** 2
    half = xp.full_like(q, 0.5)
    return xp.where(q < 0.5, q, half), xp.where(q < 0.5, half, q)


def _padded(head: Array, size: int) -> Array:
    """Repeat the last element of a converged sequence up to a length of ``size``."""
    xp, missing = namespace(head), size - head.shape[-1]
    return xp.concat([head, xp.broadcast_to(head[-1:], (missing,))]) if missing > 0 else head


def log_determinant(size: int, correlation: Array) -> Array:
    """Return log |R| ≤ 0 of the correlation matrix of n = size elements."""
    xp, (low, high), s = (
        namespace(correlation),
        _clip_below_and_above(correlation),
        geometric_ratio(correlation),
    )
    power = _powers(size + 2, low)[-1] if size < BLOCK else xp.zeros_like(low)
    small = (1 - power) / (1 - low)
    large = xp.expm1((size + 1) * xp.log(high)) / xp.expm1(xp.log(high))
    return xp.log(xp.where(s * s < 0.5, small, large)) - size * xp.log1p(s * s)


def log_density(value: Array, loc: Array, scale: Array, correlation: Array) -> Array:
    """Return the log-density of each chain, [...], for value, loc and scale of shape [..., n]."""
    xp, size = namespace(loc), loc.shape[-1]
    whitened = _whitened((value - loc) / scale, correlation)
    terms = whitened * whitened + xp.log(scale * scale)
    constant = size * math.log(2 * math.pi) + log_determinant(size, correlation)
    return -0.5 * (xp.sum(terms, axis=-1) + constant)


def _whitened(standard: Array, correlation: Array) -> Array:
    """Return L⁻¹ u = h_j/(g_j b_j) with h_j = g_j u_j − s h_{j−1}."""
    size = standard.shape[-1]
    weights = _geometric_sums(min(size, HEAD) + 1, correlation)
    inverse = 1 / (weights[:-1] * _diagonal(weights, correlation))
    carried = recursion(_padded(weights[:-1], size) * standard, -geometric_ratio(correlation))
    return carried * _padded(inverse, size)


def recursion(inputs: Array, gain: Array) -> Array:
    """Return h_j = x_j + c h_{j−1} with h_0 = 0 for inputs x [..., n] and a scalar gain |c| ≤ 1.

    It multiplies matrices within blocks and recurs over the ends of the blocks: O(n), few
    steps.
    """
    xp, size = namespace(inputs), inputs.shape[-1]
    if size <= BLOCK:
        return inputs @ _triangle(size, gain).mT
    count = -(-size // BLOCK)
    lead, spare = tuple(inputs.shape[:-1]), count * BLOCK - size
    zeros = xp.zeros((*lead, spare), dtype=inputs.dtype, device=device(inputs))
    blocks = xp.reshape(xp.concat([inputs, zeros], axis=-1), (*lead, count, BLOCK))
    within = blocks @ _triangle(BLOCK, gain).mT
    ends = recursion(within[..., -1], gain**BLOCK)
    before = xp.concat([xp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    result = within + before[..., None] * _powers(BLOCK + 1, gain)[1:]
    return xp.reshape(result, (*lead, count * BLOCK))[..., :size]


def _triangle(size: int, gain: Array) -> Array:
    """Return the matrix [n, n] with c^{i−j} for i ≥ j, else zero."""
    indices = np.arange(size)
    distance = indices[:, None] - indices
    powers = _powers(size, gain)[np.maximum(distance, 0)]
    return powers * constants(distance >= 0, gain)


def _powers(count: int, base: Array) -> Array:
    """Return c^k for k = 0 … count − 1."""
    xp = namespace(base)
    line = xp.ones_like(base)[None]  # by products: these have all derivatives at c = 0
    while line.shape[0] < count:
        line, base = xp.concat([line, line * base]), base * base
    return line[:count]


def neighbour_covariances(scale: Array, correlation: Any) -> Array:
    """Return the covariance of each element with the next one, [..., n − 1]."""
    return correlation * scale[..., :-1] * scale[..., 1:]


@dataclass(frozen=True)
class Order:
    """The order of the elements of an event in its chain: the axis of the inputs is the fastest."""

    shape: tuple[int, ...]  # of an event
    axis: int = -1  # of the inputs, negative; the other axes keep their order

    @property
    def size(self) -> int:
        """Return the number of elements of an event."""
        return math.prod(self.shape)

    def chain(self, array: Array) -> Array:
        """Bring an array [..., *event] into the order of the chain, [..., n]."""
        lead = tuple(array.shape[: len(array.shape) - len(self.shape)])
        return namespace(array).reshape(_moved(array, self.axis, -1), (*lead, self.size))

    def event(self, chain: Array) -> Array:
        """Invert :meth:`chain`: bring [..., n] back to [..., *event]."""
        shape = (*chain.shape[:-1], *self.ordered)
        return _moved(namespace(chain).reshape(chain, shape), -1, self.axis)

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return the shape of an event with the axis of the inputs moved to the end."""
        places = list(self.shape)
        places.append(places.pop(self.axis))
        return tuple(places)


def _moved(array: Array, source: int, target: int) -> Array:
    """Move one axis (negative) to another place (negative)."""
    if source == target:
        return array
    rank = len(array.shape)  # torch.moveaxis has no rule under torch's vmap
    order = [place for place in range(rank) if place != rank + source]
    order.insert(rank + target, rank + source)
    return namespace(array).permute_dims(array, tuple(order))


def site(
    name: str, loc: Array, scale: Array, correlation: Array, propagation: Propagation, order: Order
) -> Gaussian:
    """Return the Gaussian value of a latent site whose posterior is a chain."""
    means, scales = order.chain(loc), order.chain(scale)
    vector = tridiagonal_site(
        name, means, scales * scales, neighbour_covariances(scales, correlation), propagation
    )
    rank = len(loc.shape)
    lead = tuple(loc.shape[: rank - len(order.shape)])
    return move_axis(reshape(vector, (*lead, *order.ordered)), rank - 1, rank + order.axis)
