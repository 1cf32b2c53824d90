"""Chains of Normals in which neighbours are correlated: tridiagonal covariances, in O(n).

A chain is w_j = m_j + a_j u_j for signed scales a_j and a standard chain u: variances one,
correlation ρ of neighbours, none of others. Its correlation matrix R has the lower factor L with
b_j on the diagonal and ρ/b_j below it,

    b_j² = λ₊ (1 − q^{j+1})/(1 − q^j),   λ₊ = 1/(1 + q),   q = s²,   ρ = s/(1 + s²),

which the root s in (−1, 1) of ρ in (−½, ½) gives without a recursion. R is positive definite for
every n where |ρ| < ½; of n elements it is up to |ρ| < 1/(2 cos(π/(n + 1))).

Source: Posch and Pilz 2020 (scales τ m_j, whose neighbours' correlation is ρ sign(m_j m_{j−1})).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.operations.linear.chains import chain
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian

BLOCK = 64  # elements that one product of a recursion takes
HEAD = 65_536  # elements after which b is constant: to 1e-12 for |ρ| < ½ − 1e-8, else to 1e-5


def root(correlation: Array) -> Array:
    """The s in (−1, 1) for which ρ = s/(1 + s²).

    Args:
        correlation: ρ, within (−½, ½).
    """
    xp = namespace(correlation)
    eps = float(xp.finfo(correlation.dtype).eps)
    rest = xp.clip(1 - 4 * correlation * correlation, min=4 * eps)  # |s| stays below one
    return 2 * correlation / (1 + xp.sqrt(rest))


def bound(size: int) -> float:
    """The |ρ| at which a chain is no longer positive definite.

    Args:
        size: number n of its elements.
    """
    return 1 / (2 * math.cos(math.pi / (size + 1))) if size > 1 else math.inf


def sample(loc: Array, scale: Array, correlation: Array, noise: Array) -> Array:
    """Reparameterised draws.

    Args:
        loc: means m, [..., n].
        scale: signed scales a, likewise.
        correlation: ρ, without axes.
        noise: standard normal, [..., n].
    """
    return loc + scale * _standard(noise, correlation)


def _standard(noise: Array, correlation: Array) -> Array:
    """L z."""
    xp, (scales, below) = namespace(noise), factor(noise.shape[-1], correlation)
    shifted = below * noise[..., :-1]
    first = xp.zeros_like(noise[..., :1])
    return scales * noise + xp.concat([first, shifted], axis=-1)


def factor(size: int, correlation: Array) -> tuple[Array, Array]:
    """The lower factor of the correlation matrix: its diagonal, and what is below that.

    Args:
        size: n.
        correlation: ρ, without axes.

    Returns:
        b [n] and ρ/b [n − 1].
    """
    diagonal = _diagonal(_weights(min(size, HEAD) + 1, correlation), correlation)
    diagonal = _continued(diagonal, size)
    return diagonal, correlation / diagonal[:-1]


def _diagonal(weights: Array, correlation: Array) -> Array:
    """b_j for j = 1 … n of the g_j for j = 1 … n + 1."""
    s = root(correlation)
    return namespace(weights).sqrt(weights[1:] / weights[:-1] / (1 + s * s))


def _weights(size: int, correlation: Array) -> Array:
    """g_j = (1 − q^j)/(1 − q) for j = 1 … n, with derivatives of every order at q = 0 too."""
    xp, (low, high) = namespace(correlation), _parts(correlation)
    powers = _powers(min(size, BLOCK) + 1, low)[1:]  # those beyond are below rounding
    zeros = xp.zeros_like(powers[:1])
    small = (1 - _continued(xp.concat([powers, zeros]), size)[:size]) / (1 - low)
    places = xp.arange(1, size + 1, dtype=correlation.dtype, device=device(correlation))
    large = xp.expm1(places * xp.log(high)) / xp.expm1(xp.log(high))
    return xp.where(root(correlation) ** 2 < 0.5, small, large)


def _parts(correlation: Array) -> tuple[Array, Array]:
    """q below a half, where powers of it vanish, and above, where 1 − q^j would round."""
    xp, q = namespace(correlation), root(correlation) ** 2
    half = xp.full_like(q, 0.5)
    return xp.where(q < 0.5, q, half), xp.where(q < 0.5, half, q)


def _continued(head: Array, size: int) -> Array:
    """The first elements of a sequence that has converged, and its last one for all others."""
    xp, missing = namespace(head), size - head.shape[-1]
    return xp.concat([head, xp.broadcast_to(head[-1:], (missing,))]) if missing > 0 else head


def log_determinant(size: int, correlation: Array) -> Array:
    """log |R| of the correlation matrix, zero or less.

    Args:
        size: n.
        correlation: ρ, without axes.
    """
    xp, (low, high), s = namespace(correlation), _parts(correlation), root(correlation)
    power = _powers(size + 2, low)[-1] if size < BLOCK else xp.zeros_like(low)
    small = (1 - power) / (1 - low)
    large = xp.expm1((size + 1) * xp.log(high)) / xp.expm1(xp.log(high))
    return xp.log(xp.where(s * s < 0.5, small, large)) - size * xp.log1p(s * s)


def log_density(value: Array, loc: Array, scale: Array, correlation: Array) -> Array:
    """Log-density of each chain.

    Args:
        value: [..., n].
        loc: means m, likewise.
        scale: signed scales a, likewise.
        correlation: ρ, without axes.
    """
    xp, size = namespace(loc), loc.shape[-1]
    whitened = _whitened((value - loc) / scale, correlation)
    terms = whitened * whitened + xp.log(scale * scale)
    constant = size * math.log(2 * math.pi) + log_determinant(size, correlation)
    return -0.5 * (xp.sum(terms, axis=-1) + constant)


def _whitened(standard: Array, correlation: Array) -> Array:
    """L⁻¹ u: with h_j = g_j u_j − s h_{j−1} it is h_j/(g_j b_j)."""
    size = standard.shape[-1]
    weights = _weights(min(size, HEAD) + 1, correlation)
    inverse = 1 / (weights[:-1] * _diagonal(weights, correlation))
    carried = recursion(_continued(weights[:-1], size) * standard, -root(correlation))
    return carried * _continued(inverse, size)


def recursion(inputs: Array, gain: Array) -> Array:
    """h_j = x_j + c h_{j−1} with h_0 = 0, in O(n): products within blocks, then over the blocks.

    Args:
        inputs: x, [..., n].
        gain: c, without axes, at most one in size.
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
    found = within + before[..., None] * _powers(BLOCK + 1, gain)[1:]
    return xp.reshape(found, (*lead, count * BLOCK))[..., :size]


def _triangle(size: int, gain: Array) -> Array:
    """c^{i−j} for i ≥ j, else zero: [n, n]."""
    places = np.arange(size)
    distance = places[:, None] - places
    known = _powers(size, gain)[np.maximum(distance, 0)]
    return known * constants(distance >= 0, gain)


def _powers(count: int, base: Array) -> Array:
    """c^k for k = 0 … count − 1, by products, which have all derivatives at c = 0 too."""
    xp = namespace(base)
    line = xp.ones_like(base)[None]
    while line.shape[0] < count:
        line, base = xp.concat([line, line * base]), base * base
    return line[:count]


def neighbours(scale: Array, correlation: Any) -> Array:
    """Covariance of each element with the next one: [..., n − 1].

    Args:
        scale: signed scales a, [..., n].
        correlation: ρ.
    """
    return correlation * scale[..., :-1] * scale[..., 1:]


@dataclass(frozen=True)
class Order:
    """How a chain goes through a site: its trailing event axes, that of the inputs fastest.

    Args:
        shape: of an event.
        axis: of the inputs, negative; the others keep their order before it.
    """

    shape: tuple[int, ...]
    axis: int = -1

    @property
    def size(self) -> int:
        """Number of elements of an event."""
        return math.prod(self.shape)

    def chain(self, array: Array) -> Array:
        """An array [..., *event] in the order of the chain, [..., n]."""
        lead = tuple(array.shape[: len(array.shape) - len(self.shape)])
        return namespace(array).reshape(_moved(array, self.axis, -1), (*lead, self.size))

    def event(self, chain: Array) -> Array:
        """The inverse of :meth:`chain`."""
        shape = (*chain.shape[:-1], *self.ordered)
        return _moved(namespace(chain).reshape(chain, shape), -1, self.axis)

    @property
    def ordered(self) -> tuple[int, ...]:
        """The shape of an event whose inputs are last."""
        places = list(self.shape)
        places.append(places.pop(self.axis))
        return tuple(places)


def _moved(array: Array, source: int, target: int) -> Array:
    """One axis moved to another place; moveaxis of torch has no rule under its vmap."""
    if source == target:
        return array
    rank = len(array.shape)
    order = [place for place in range(rank) if place != rank + source]
    order.insert(rank + target, rank + source)
    return namespace(array).permute_dims(array, tuple(order))


def site(
    name: str, loc: Array, scale: Array, correlation: Array, propagation: Propagation, order: Order
) -> Gaussian:
    """The live value of a latent site whose posterior is a chain.

    Args:
        name: the site.
        loc: means, [..., *event].
        scale: signed scales, likewise.
        correlation: ρ, without axes.
        propagation: how randomness flows from the site.
        order: of the chain.
    """
    means, scales = order.chain(loc), order.chain(scale)
    vector = chain(name, means, scales * scales, neighbours(scales, correlation), propagation)
    rank = len(loc.shape)
    lead = tuple(loc.shape[: rank - len(order.shape)])
    return move_axis(reshape(vector, (*lead, *order.ordered)), rank - 1, rank + order.axis)
