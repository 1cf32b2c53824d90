"""Compute with chains of Normals whose neighbours are correlated (tridiagonal covariance), in O(n).

A chain is w_j = m_j + a_j u_j with signed scales a_j and a standard normal u whose
neighbours have correlation ρ. The lower factor of its correlation matrix R has b_j on the
diagonal, ρ/b_j below it, b_j² = (1 − q^{j+1})/((1 − q^j)(1 + q)), q = s², ρ = s/(1 + s²).
R is positive definite for all n if
|ρ| < ½. Source: Posch and Pilz 2020 (scales τ m_j).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_calculus.numerics.arrays import Array, axis_moved, constants, device, namespace
from moment_calculus.operations.linear.tridiagonal import tridiagonal_site
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation, check_choice
from moment_guides.families.mean_field import checked_scale

BLOCK = 64  # elements in one matrix product of a recursion
HEAD = 65_536  # b is constant after so many: to 1e-12 for |ρ| < ½ − 1e-8, else to 1e-5


def geometric_ratio(correlation: Array) -> Array:
    """Return the s in (−1, 1) with ρ = s/(1 + s²), for ρ in (−½, ½)."""
    return 2 * correlation / (1 + namespace(correlation).sqrt(_definiteness(correlation)))


def _definiteness(correlation: Array) -> Array:
    """Return 1 − 4ρ², kept so far above zero that |s| stays below one."""
    xp = namespace(correlation)
    eps = float(xp.finfo(correlation.dtype).eps)
    return xp.clip(1 - 4 * correlation * correlation, min=4 * eps)


def bound(size: int) -> float:
    """Return the |ρ| from which a chain of ``size`` elements is not definite."""
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
    """Return the diagonal b [n] of the lower factor L, and ρ/b [n − 1] below it."""
    diagonal = _diagonal(_geometric_sums(min(size, HEAD) + 1, correlation), correlation)
    diagonal = _padded(diagonal, size)
    return diagonal, correlation / diagonal[:-1]


def _diagonal(weights: Array, correlation: Array) -> Array:
    """Return b_j for j = 1 … n from g_j for j = 1 … n + 1."""
    s = geometric_ratio(correlation)
    return namespace(weights).sqrt(weights[1:] / weights[:-1] / (1 + s * s))


def _geometric_sums(size: int, correlation: Array) -> Array:
    """Return g_j = (1 − q^j)/(1 − q) for j = 1 … n, differentiable at q = 0."""
    xp, (low, high) = namespace(correlation), _clip_below_and_above(correlation)
    powers = _powers(min(size, BLOCK) + 1, low)[1:]  # higher powers are below rounding
    zeros = xp.zeros_like(powers[:1])
    small = (1 - _padded(xp.concat([powers, zeros]), size)[:size]) / (1 - low)
    indices = xp.arange(1, size + 1, dtype=correlation.dtype, device=device(correlation))
    large = xp.expm1(indices * xp.log(high)) / xp.expm1(xp.log(high))
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
    # The eigenvalues are 1 ± 2ρ cos θ, and 1 if n is odd, for θ = kπ/(n + 1), k ≤ n/2. Each pair
    # multiplies to 1 − 4ρ² cos² θ, written so that nothing cancels where ρ is near ½.
    xp = namespace(correlation)
    sines = np.sin(np.arange(1, size // 2 + 1) * math.pi / (size + 1)) ** 2
    rest = _definiteness(correlation)
    return xp.sum(xp.log(rest + (1 - rest) * constants(sines, correlation)))


def log_density(value: Array, loc: Array, scale: Array, correlation: Array) -> Array:
    """Return the log-density [...] of chains; value, loc and scale are [..., n]."""
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
    """The order of an event's elements in its chain: the inputs' axis is fastest."""

    shape: tuple[int, ...]  # of an event
    axis: int = -1  # of the inputs, negative; the other axes keep their order

    @property
    def size(self) -> int:
        """Return the number of elements of an event."""
        return math.prod(self.shape)

    def chain(self, array: Array) -> Array:
        """Bring an array [..., *event] into the order of the chain, [..., n]."""
        lead = tuple(array.shape[: len(array.shape) - len(self.shape)])
        return namespace(array).reshape(axis_moved(array, self.axis, -1), (*lead, self.size))

    def event(self, chain: Array) -> Array:
        """Invert :meth:`chain`: bring [..., n] back to [..., *event]."""
        shape = (*chain.shape[:-1], *self.ordered)
        return axis_moved(namespace(chain).reshape(chain, shape), -1, self.axis)

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return the shape of an event with the axis of the inputs moved to the end."""
        axes = list(self.shape)
        axes.append(axes.pop(self.axis))
        return tuple(axes)


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


class TridiagonalNormalBase:
    """Mixin for a Normal whose neighbours in a chain have correlation ρ."""

    loc: Array  # means, [*batch, *event]
    scale: Array  # signed scales a, like loc: the covariance of neighbours is ρ a_j a_{j+1}
    correlation: Array  # ρ in (−½, ½), a scalar
    order: Order  # of the elements of an event in the chain

    @property
    def mean(self) -> Array:
        """Return the mean of every element, [*batch, *event]."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Return the variance of every element, [*batch, *event]."""
        return self.scale * self.scale

    @property
    def chains(self) -> tuple[Array, Array, Array]:
        """Return means and scales in the order of the chain, [*batch, n], and ρ."""
        return self.order.chain(self.loc), self.order.chain(self.scale), self.correlation

    def log_determinant(self) -> Array:
        """Return log |R| of the correlation matrix R of one event."""
        return log_determinant(self.order.size, self.correlation)

    def entropy(self) -> Array:
        """Return the entropy of each event, [*batch]."""
        alone = gaussian_entropy(self.order.chain(self.variance))
        return namespace(alone).sum(alone, axis=-1) + 0.5 * self.log_determinant()

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Return the log-density of values [..., *event], [...]."""
        return log_density(self.order.chain(value), *self.chains)

    def value(self, name: str, propagation: Propagation) -> Gaussian:
        """Return the Gaussian value of a latent site that has this posterior."""
        parts = self.loc, self.scale, self.correlation
        return site(name, *parts, propagation, self.order)


SCALES = ("proportional", "free")
INSIGNIFICANT = 1e-3  # smaller initial means are replaced
SMALL = 0.01  # the largest replacement
LEAST = 1e-6  # a proportional scale is at least τ times this
GOLDEN = 0.6180339887498949  # its multiples modulo 1 are evenly spread

NO_PRIOR = "has no expected log-density in closed form"

Groups = Mapping[str, Sequence[str]] | Iterable[Sequence[str]]


class Group(NamedTuple):
    """Summary of the sites that share a scale and a correlation."""

    sites: tuple[str, ...]
    size: int  # number of elements of all sites
    tau: float  # the common scale; for free scales the geometric mean of σ/|m|
    rho: float  # correlation of neighbours


def summarise_group(sites: tuple[str, ...], parts: Iterable[Sequence[Any]], rho: float) -> Group:
    """Summarise a group; ``parts`` has locations and standard deviations by site."""
    ratios = [np.log(scale) - np.log(np.maximum(abs(loc), LEAST)) for loc, scale in parts]
    logs = np.concatenate([np.asarray(ratio, float).reshape(-1) for ratio in ratios])
    return Group(sites, logs.size, float(np.exp(logs.mean())), rho)


class TridiagonalOptions:
    """The options of a tridiagonal guide; raises ValueError if one of them is invalid."""

    def __init__(
        self,
        groups: Groups | None,
        scales: str,
        init_scale: float,
        correlation: float,
        learn_correlation: bool,
    ) -> None:
        check_choice("scales", scales, SCALES)
        if not abs(correlation) < 0.5:
            raise ValueError(
                f"correlation={correlation} of neighbours in a chain has to be in (-1/2, 1/2): a "
                "chain of n elements is positive definite below 1/(2 cos(π/(n + 1))), which is "
                f"{bound(3):.3f} for 3, {bound(10):.3f} for 10 and 1/2 for all n"
            )
        self.groups = None if groups is None else _normalised_groups(groups)
        self.scales, self.init_scale = scales, checked_scale(init_scale)
        self.correlation, self.learn_correlation = correlation, learn_correlation

    def fixed(self) -> dict[str, Any]:
        """Return the settings that are saved beside the parameters."""
        by_name = self.groups
        groups = None if by_name is None else {name: list(sites) for name, sites in by_name.items()}
        settings: dict[str, Any] = {"scales": self.scales, "groups": groups}
        if self.learn_correlation:
            return {**settings, "learn_correlation": True}
        return {**settings, "learn_correlation": False, "correlation": float(self.correlation)}

    def design(
        self, orders: Mapping[str, Order], bounded: Iterable[str], latent: Iterable[str]
    ) -> SiteLayout:
        """Assign sites to groups and scales; raise if the groups do not fit."""
        chains = [name for name, order in orders.items() if order.size > 1]
        # m = 0 is no special value of a bounded site: its scale is never tied to m
        proportional_sites = set(chains if self.scales == "proportional" else ()) - set(bounded)
        return SiteLayout(
            dict(orders), self._groups_of(chains, latent), frozenset(proportional_sites)
        )

    def _groups_of(self, chains: Sequence[str], latent: Iterable[str]) -> dict[str, str]:
        if self.groups is None:
            return {name: name for name in chains}
        group_of = {site: group for group, sites in self.groups.items() for site in sites}
        if missing := [name for name in chains if name not in group_of]:
            raise _missing_site_error(missing)
        if extra := [name for name in group_of if name not in chains]:
            raise _no_chain_error(extra, chains, latent)
        return group_of


class SiteLayout(NamedTuple):
    """The chain order, group and kind of scale of every latent site of a model."""

    orders: dict[str, Order]  # of the chain through each latent site
    groups: dict[str, str]  # the group of each site with more than one element
    proportional_sites: frozenset[str]  # the sites whose scales are τ m

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Return the sites of each group."""
        members: dict[str, list[str]] = {}
        for site, group in self.groups.items():
            members.setdefault(group, []).append(site)
        return {group: tuple(sites) for group, sites in members.items()}

    def scale(self, site: str, loc: Array, spread: Array) -> Array:
        """Return the signed scales of a chain; ``spread`` is τ or the deviations."""
        return proportional_scales(loc, spread) if site in self.proportional_sites else spread


def chain_order(shape: Sequence[int], event_dim: int, axis: int) -> Order:
    """Return the order of the chain through a site; its inputs are on ``axis``."""
    event = tuple(shape[len(shape) - event_dim :])
    return Order(event, axis if -axis <= event_dim else -1)  # no batch axis is in the chain


def _normalised_groups(groups: Groups) -> dict[str, tuple[str, ...]]:
    if isinstance(groups, str):
        raise ValueError(f"groups={groups!r} is one name: write a list of lists of names")
    named = groups.items() if isinstance(groups, Mapping) else (("+".join(g), g) for g in groups)
    groups_by_name = {str(name): (s,) if isinstance(s, str) else tuple(s) for name, s in named}
    counts = Counter(site for sites in groups_by_name.values() for site in sites)
    if twice := sorted(site for site, count in counts.items() if count > 1):
        raise ValueError(f"groups has {', '.join(map(repr, twice))} twice: a site has one group")
    return groups_by_name


def _missing_site_error(missing: Sequence[str]) -> UnsupportedMoments:
    return UnsupportedMoments(
        f"groups of TridiagonalGuide leaves {', '.join(map(repr, missing))} out",
        sites=missing,
        remedy="put every latent site of more than one element in one of the groups",
    )


def _no_chain_error(
    others: Sequence[str], chains: Sequence[str], latent: Iterable[str]
) -> UnsupportedMoments:
    scalars = [name for name in others if name in set(latent)]
    why = "is one number" if scalars == list(others) else "is no latent site of the model"
    return UnsupportedMoments(
        f"groups of TridiagonalGuide names {', '.join(map(repr, others))}, which {why}",
        sites=scalars,
        remedy=f"name sites of more than one element: {', '.join(chains) or 'the model has none'}",
    )


def without_tiny_means(loc: Array) -> Array:
    """Replace initial locations below 1e-3 by fixed nonzero numbers up to 0.01."""
    indices = 1 + np.arange(math.prod(loc.shape)).reshape(tuple(loc.shape))
    small = SMALL * (2 * (indices * GOLDEN % 1) - 1)  # evenly spread, and none is zero
    return namespace(loc).where(abs(loc) < INSIGNIFICANT, constants(small, loc), loc)


def proportional_scales(loc: Array, tau: Array) -> Array:
    """Return the signed scales τ m, m = loc, where |m| is 1e-6 at least."""
    xp = namespace(loc)
    least = xp.where(loc < 0, -LEAST * xp.ones_like(loc), LEAST * xp.ones_like(loc))
    return tau * xp.where(abs(loc) < LEAST, least, loc)
