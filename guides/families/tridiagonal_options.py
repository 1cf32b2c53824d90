"""Check the options of the tridiagonal guides and apply them to the latent sites of a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guides.families.initialization import checked_scale
from guides.families.tridiagonal import Order, bound
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.values.propagation import check_choice

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
    """Summarise a group; ``parts`` holds the locations and standard deviations of each site."""
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
        """Return the settings of the posterior that are not parameters, to be saved with them."""
        by_name = self.groups
        groups = None if by_name is None else {name: list(sites) for name, sites in by_name.items()}
        settings: dict[str, Any] = {"scales": self.scales, "groups": groups}
        if self.learn_correlation:
            return {**settings, "learn_correlation": True}
        return {**settings, "learn_correlation": False, "correlation": float(self.correlation)}

    def design(
        self, orders: Mapping[str, Order], bounded: Iterable[str], latent: Iterable[str]
    ) -> SiteLayout:
        """Assign sites to groups and scales; raise UnsupportedMoments if the groups do not fit."""
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
    """The chain order, the group and the kind of scale of every latent site of a model."""

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
        """Return the signed scales of a chain; ``spread`` is τ or its own standard deviations."""
        return proportional_scales(loc, spread) if site in self.proportional_sites else spread


def chain_order(shape: Sequence[int], event_dim: int, axis: int) -> Order:
    """Return the order of the chain through a site whose inputs are on a negative ``axis``."""
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
    """Replace initial locations below 1e-3 in size by fixed nonzero numbers up to 0.01."""
    places = 1 + np.arange(math.prod(loc.shape)).reshape(tuple(loc.shape))
    small = SMALL * (2 * (places * GOLDEN % 1) - 1)  # evenly spread, and none is zero
    return namespace(loc).where(abs(loc) < INSIGNIFICANT, constants(small, loc), loc)


def proportional_scales(loc: Array, tau: Array) -> Array:
    """Return the signed scales τ m for the means m = loc, where |m| counts as 1e-6 at least."""
    xp = namespace(loc)
    least = xp.where(loc < 0, -LEAST * xp.ones_like(loc), LEAST * xp.ones_like(loc))
    return tau * xp.where(abs(loc) < LEAST, least, loc)
