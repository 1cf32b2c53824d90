"""Check the options of the tridiagonal guides and apply them to the latent sites of a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guides.families.initialization import checked_scale
from guides.families.tridiagonal import Order, bound
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import check_choice
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.refusals.errors import UnsupportedMoments

SCALES = ("proportional", "free")
INSIGNIFICANT = 1e-3  # smaller initial means are replaced
SMALL = 0.01  # the largest replacement
LEAST = 1e-6  # a proportional scale is at least τ times this
GOLDEN = 0.6180339887498949  # its multiples modulo 1 are evenly spread

NO_PRIOR = "has no expected log-density in closed form"

Groups = Mapping[str, Sequence[str]] | Iterable[Sequence[str]]

TRIDIAGONAL_OPTIONS = """
groups: which sites have the same τ and ρ: lists of names, or a mapping of names to them; by default
    each site is a group, so that the weights and the biases of each layer are two.
scales: ``"free"``, one standard deviation for each component, and the correlation ρ of neighbours,
    so that ρ = 0 is mean field; or ``"proportional"``, the source paper's: standard deviations
    τ |m| with one τ for a group, and the covariance ρ τ² m_j m_{j−1} of neighbours, whose
    correlation is ρ sign(m_j m_{j−1}).
init_scale: initial standard deviations, or initial τ.
correlation: initial ρ, in (−1/2, 1/2).
learn_correlation: whether ρ is a parameter; ``correlation=0`` that is none is the paper's baseline
    of independent components.
init_loc_fn: initial locations, a function of a site.
create_plates: optional function that makes the plates, as in {host}'s guides.
"""

TRIDIAGONAL_ERRORS = """
Each site is a chain through the event axes of its unconstrained value, element by element, the axis
fastest along which the model contracts it: row by row of a weight [out, in] as of torch's layers,
and the same order of the same weights [in, out] as of flax's. Different sites, and elements of
plates, are independent. Draws, log-densities and divergences take O(n); ρ = ½ tanh(r) is a
correlation for chains of every length.

Sites that are one number have a free standard deviation, as under ``DVIGuide``, and so have those
of a bounded support, where m = 0 is no special place. A proportional scale degenerates at m = 0: at
the start means below 1e-3 are replaced by fixed small numbers up to 0.01, and |m| counts as 1e-6 at
least (the source paper replaces them by random ones). A weight that the data do not need then costs
½ log(1 + 1/τ²) at least, and log |τ m| may keep means from changing their sign: on four regressions
they predict worse than free scales and mean field by 0.4 to 2.7 in log-likelihood.

Linear maps take the covariances of neighbours into account in O(n), also that of the last weight of
a row with the first of the next, which makes two outputs dependent; under ``covariance="diagonal"``
only what belongs to one output is kept, and of the inputs' covariances nothing. Other operations
need the covariance of all n elements, or are refused (convolutions, weights that enter twice).
Under ``propagation="sampled"`` a site is drawn once for each particle. ``linear_response`` corrects
``scales="free"``; proportional scales are tied to the means, which it cannot know.

Raises:
    ValueError: if an option is unknown, ``init_scale`` not positive, ``correlation`` not in
        (−1/2, 1/2), or ``groups`` has a site twice.
    RuntimeError: when called without having met a model.
    UnsupportedMoments: when called, if ``groups`` leaves a site out or names one that is no chain.

Source: Posch and Pilz 2020, for ``scales="proportional"``.

Example:
    >>> guide = TridiagonalGuide(correlation=0.3)
"""


class Group(NamedTuple):
    """Summary of the sites that share a scale and a correlation."""

    sites: tuple[str, ...]
    size: int  # number of elements of all sites
    tau: float  # the common scale; for free scales the geometric mean of σ/|m|
    rho: float  # correlation of neighbours


def described(sites: tuple[str, ...], parts: Iterable[Sequence[Any]], rho: float) -> Group:
    """Summarise a group; ``parts`` holds the locations and standard deviations of each site."""
    ratios = [np.log(scale) - np.log(np.maximum(abs(loc), LEAST)) for loc, scale in parts]
    logs = np.concatenate([np.asarray(ratio, float).reshape(-1) for ratio in ratios])
    return Group(sites, logs.size, float(np.exp(logs.mean())), rho)


class Options:
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
        self.groups = None if groups is None else _named(groups)
        self.scales, self.init_scale = scales, checked_scale(init_scale)
        self.correlation, self.learn_correlation = correlation, learn_correlation

    def fixed(self) -> dict[str, Any]:
        """Return the settings of the posterior that are not parameters, to be saved with them."""
        known = self.groups
        groups = None if known is None else {name: list(sites) for name, sites in known.items()}
        settings: dict[str, Any] = {"scales": self.scales, "groups": groups}
        if self.learn_correlation:
            return {**settings, "learn_correlation": True}
        return {**settings, "learn_correlation": False, "correlation": float(self.correlation)}

    def design(
        self, orders: Mapping[str, Order], bounded: Iterable[str], latent: Iterable[str]
    ) -> Design:
        """Assign sites to groups and scales; raise UnsupportedMoments if the groups do not fit."""
        chains = [name for name, order in orders.items() if order.size > 1]
        # m = 0 is no special value of a bounded site: its scale is never tied to m
        proportional = set(chains if self.scales == "proportional" else ()) - set(bounded)
        return Design(dict(orders), self._groups_of(chains, latent), frozenset(proportional))

    def _groups_of(self, chains: Sequence[str], latent: Iterable[str]) -> dict[str, str]:
        if self.groups is None:
            return {name: name for name in chains}
        found = {site: group for group, sites in self.groups.items() for site in sites}
        if missing := [name for name in chains if name not in found]:
            raise _left_out(missing)
        if others := [name for name in found if name not in chains]:
            raise _no_chain(others, chains, latent)
        return found


class Design(NamedTuple):
    """The chain order, the group and the kind of scale of every latent site of a model."""

    orders: dict[str, Order]  # of the chain through each latent site
    groups: dict[str, str]  # the group of each site with more than one element
    proportional: frozenset[str]  # the sites whose scales are τ m

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Return the sites of each group."""
        found: dict[str, list[str]] = {}
        for site, group in self.groups.items():
            found.setdefault(group, []).append(site)
        return {group: tuple(sites) for group, sites in found.items()}

    def scale(self, site: str, loc: Array, spread: Array) -> Array:
        """Return the signed scales of a chain; ``spread`` is τ or its own standard deviations."""
        return proportional(loc, spread) if site in self.proportional else spread


def order_of(shape: Sequence[int], event_dim: int, axis: int) -> Order:
    """Return the order of the chain through a site whose inputs are on a negative ``axis``."""
    event = tuple(shape[len(shape) - event_dim :])
    return Order(event, axis if -axis <= event_dim else -1)  # no batch axis is in the chain


def _named(groups: Groups) -> dict[str, tuple[str, ...]]:
    if isinstance(groups, str):
        raise ValueError(f"groups={groups!r} is one name: write a list of lists of names")
    named = groups.items() if isinstance(groups, Mapping) else (("+".join(g), g) for g in groups)
    found = {str(name): (s,) if isinstance(s, str) else tuple(s) for name, s in named}
    counts = Counter(site for sites in found.values() for site in sites)
    if twice := sorted(site for site, count in counts.items() if count > 1):
        raise ValueError(f"groups has {', '.join(map(repr, twice))} twice: a site has one group")
    return found


def _left_out(missing: Sequence[str]) -> UnsupportedMoments:
    return UnsupportedMoments(
        f"groups of TridiagonalGuide leaves {', '.join(map(repr, missing))} out",
        sites=missing,
        remedy="put every latent site of more than one element in one of the groups",
    )


def _no_chain(
    others: Sequence[str], chains: Sequence[str], latent: Iterable[str]
) -> UnsupportedMoments:
    known = [name for name in others if name in set(latent)]
    why = "is one number" if known == list(others) else "is no latent site of the model"
    return UnsupportedMoments(
        f"groups of TridiagonalGuide names {', '.join(map(repr, others))}, which {why}",
        sites=known,
        remedy=f"name sites of more than one element: {', '.join(chains) or 'the model has none'}",
    )


def started(loc: Array) -> Array:
    """Replace initial locations below 1e-3 in size by fixed nonzero numbers up to 0.01."""
    places = 1 + np.arange(math.prod(loc.shape)).reshape(tuple(loc.shape))
    small = SMALL * (2 * (places * GOLDEN % 1) - 1)  # evenly spread, and none is zero
    return namespace(loc).where(abs(loc) < INSIGNIFICANT, constants(small, loc), loc)


def proportional(loc: Array, tau: Array) -> Array:
    """Return the signed scales τ m for the means m = loc, where |m| counts as 1e-6 at least."""
    xp = namespace(loc)
    least = xp.where(loc < 0, -LEAST * xp.ones_like(loc), LEAST * xp.ones_like(loc))
    return tau * xp.where(abs(loc) < LEAST, least, loc)
