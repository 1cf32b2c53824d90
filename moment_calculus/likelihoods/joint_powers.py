"""Power means of the likelihood of a datum: the product over its elements and sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.multivariate import check_gaussian, log_mean_of_normal_powers
from moment_calculus.numerics.arrays import Array, device, namespace
from moment_calculus.operations.elementwise.sums import aligned, subtract, ties_of
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import broadcast, flattened, reshape
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.ancestry import as_vector, is_rearranged, shifted_from
from moment_calculus.values.deferred import Composite
from moment_calculus.values.spread import overlap

SAMPLED = "use propagation='sampled', which draws the weights for each particle"
Axes = Collection[int]


@dataclass(frozen=True, eq=False)
class Parameter:
    """A random parameter of the elements of a site."""

    gaussian: Gaussian
    event_rank: int = 0  # number of trailing axes inside an element, such as that of classes

    @staticmethod
    def of(value: Any, rank: int) -> Parameter:
        """Return the parameter behind a value, of elements with ``rank`` axes."""
        source = value.source if isinstance(value, Composite) else getattr(value, "base", value)
        source = source if isinstance(source, Gaussian) else source.gaussian()
        return Parameter(source, max(0, len(source.shape) - rank))

    def size(self, axis: int) -> int:
        """Return how many components differ along a (negative) axis of the elements."""
        shape = shifted_from(self.gaussian).shape
        lead = shape[: len(shape) - self.event_rank]
        return lead[axis] if -axis <= len(lead) else 1

    def dependent_axes(self, axes: Axes) -> set[int]:
        """Return the (negative) axes along which components may be dependent."""
        # A repeated component is one component under any propagation. Apart from that,
        # diagonal propagation takes components as independent by definition.
        repeated = {axis for axis in axes if self.size(axis) == 1}
        value = self.gaussian
        if value.independent or not value.propagation.has_full_covariance:
            return repeated
        features = None if value.axis is None else value.axis + self.event_rank
        across = {axis for axis in axes if axis != features and not value.batch_independent}
        along = {axis for axis in axes if axis == features and value.has_covariance}
        return across | along | repeated


def dependent_axes(parameters: Sequence[Parameter], axes: Axes) -> set[int]:
    """Return the (negative) axes along which elements of a site may be dependent."""
    dependent: set[int] = set().union(*(parameter.dependent_axes(axes) for parameter in parameters))
    pairs = combinations(parameters, 2) if set(axes) - dependent else ()
    return set(axes) if any(_is_crossed(*pair) for pair in pairs) else dependent


def _is_crossed(one: Parameter, other: Parameter) -> bool:
    """Tell if elements of one parameter may depend on other elements of another one."""
    left, right = one.gaussian, other.gaussian
    if (
        not (overlap(left, right) and left.propagation.has_full_covariance)
        or left.origin is right.origin
    ):
        return False
    return (
        bool(one.event_rank or other.event_rank) or ties_of(*aligned(left, right)[:2]) == Ties.ALL
    )


@dataclass(frozen=True)
class Layout:
    """The elements of a site as vectors along some of their axes."""

    shape: tuple[int, ...]  # of the elements
    vector_axes: tuple[int, ...]  # ascending negative axes, which become one trailing axis

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the axes that stay."""
        axes = range(-len(self.shape), 0)
        return tuple(axis for axis in axes if axis not in self.vector_axes)

    @property
    def vector_shape(self) -> tuple[int, ...]:
        """Return the shape of the array of vectors."""
        size = math.prod(self.shape[axis] for axis in self.vector_axes)
        return (*(self.shape[axis] for axis in self.kept), size)

    @property
    def _order(self) -> tuple[int, ...]:
        return tuple(axis + len(self.shape) for axis in (*self.kept, *self.vector_axes))

    def to_vectors(self, array: Array) -> Array:
        """Return an array that broadcasts to the elements as vectors."""
        xp = namespace(array)
        wide = xp.broadcast_to(array, self.shape)
        return xp.reshape(xp.permute_dims(wide, self._order), self.vector_shape)

    def from_vectors(self, sums: Array) -> Array:
        """Return one number per vector, with axes of size one for the tied axes."""
        sizes = zip(range(-len(self.shape), 0), self.shape, strict=True)
        ones = (1 if axis in self.vector_axes else size for axis, size in sizes)
        return namespace(sums).reshape(sums, tuple(ones))

    def vector(self, value: Gaussian) -> Gaussian | None:
        """Return a value as vectors with their joint covariance; else None."""
        value = reshape(value, (1,) * (len(self.shape) - len(value.shape)) + value.shape)
        if len(self._nontrivial_axes) > 1:
            return self._flat(value)
        value = (
            permute(value, self._order) if self._order != tuple(range(len(self.shape))) else value
        )
        lead, last = self.vector_shape[:-1], self.vector_shape[-1]
        indices = [self.vector_axes.index(axis) for axis in self._nontrivial_axes]
        size = value.shape[len(lead) + indices[0]] if indices else 1
        value = reshape(
            value, (*value.shape[: len(lead)], *([size] if self._nontrivial_axes else ()))
        )
        if not self._nontrivial_axes:
            return reshape(broadcast(value, lead), self.vector_shape)
        featured = _on_last(value)
        return None if featured is None else broadcast(featured, (*lead, last), -1)

    @property
    def _nontrivial_axes(self) -> tuple[int, ...]:
        """Return the tied axes that have several elements."""
        return tuple(axis for axis in self.vector_axes if self.shape[axis] > 1)

    def _flat(self, value: Gaussian) -> Gaussian | None:
        """Return the elements of all axes as one vector; None if that is impossible."""
        if value.shape != self.shape or any(self.shape[axis] != 1 for axis in self.kept):
            return None
        whole = flattened(value)
        return None if whole is None else reshape(whole, self.vector_shape)


def _on_last(value: Gaussian) -> Gaussian | None:
    """Return the value with its trailing axis as feature axis; else None."""
    if value.axis == -1:
        return value
    if value.axis is None:
        return broadcast(value, value.shape, -1) if value.shape[-1] == 1 else as_vector(value)
    return None


@dataclass(frozen=True, eq=False)
class ObservedSite:
    """An observed site as a product of densities of its elements."""

    name: str
    family: str  # name of its distribution
    shape: tuple[int, ...]  # of the elements
    events: int  # number of trailing axes of the elements that belong to the site's event
    parameters: tuple[Parameter, ...]  # the random ones
    # Factors of the log densities inside the power, broadcastable to the elements: the
    # user's scale, and zero where a mask excludes.
    weights: Any
    expected: Callable[[], Array]  # E[log p], broadcastable to the elements
    tempered: Callable[[Any], Array]  # from a power a to (1/a) log E[pᵃ], both broadcastable
    normal: tuple[Any, Any, Any] | None = None  # observation, location, scale of a Normal
    plates: tuple[str, ...] = ()  # names of the plates around it whose elements are no data

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the latent sites that it depends on."""
        return frozenset().union(*(parameter.gaussian.sites for parameter in self.parameters))

    @property
    def has_weight(self) -> bool:
        """Tell if any of its elements counts; weight zero excludes a site as a whole."""
        return hasattr(self.weights, "shape") or bool(self.weights)

    def axes_within_datum(self, datum: Sequence[int]) -> tuple[int, ...]:
        """Return the axes with several elements of a datum of batch axes."""
        outer = {axis - self.events for axis in datum}
        sizes = zip(range(-len(self.shape), 0), self.shape, strict=True)
        return tuple(axis for axis, size in sizes if size > 1 and axis not in outer)


def power_mean(
    observed: Callable[..., ObservedSite], name: str, fn: Any, value: Any, alpha: float
) -> Array:
    """Return (1/α) log E_q[p(value)ᵅ] of one site, of the distribution's batch shape."""
    site = observed(name, fn, value)
    return joint_power_mean([site], alpha, range(site.events - len(site.shape), 0))


def power_mean_of_data(
    observed: Callable[..., ObservedSite],
    sites: Iterable[tuple[Any, ...]],
    alpha: float,
    datum: Sequence[int],
) -> Array:
    """Return (1/α) log E_q[Π pᵅ] of every datum, over all that is observed of it."""
    return joint_power_mean([observed(*site) for site in sites], alpha, datum)


class Wrappers(NamedTuple):
    """The framework's classes of distributions around another one."""

    independent: Any
    masked: Any
    expanded: Any

    def elements(
        self, fn: Any, value: Any, weights: Any, included: Callable[[Any, Any], Any]
    ) -> tuple[Any, Any, int, Any]:
        """Return the distribution of elements, their value, the event axes, and weights.

        ``included`` takes a mask and a value, and gives the value where the mask includes.
        """
        events = 0
        while True:
            if isinstance(fn, self.independent):
                added = fn.reinterpreted_batch_ndims
                events += added
                weights = weights[(..., *(None,) * added)] if hasattr(weights, "shape") else weights
            elif isinstance(fn, self.masked):
                value, weights = included(fn, value), _masked(weights, fn._mask)
            elif not isinstance(fn, self.expanded):
                return fn, value, events, weights
            fn = fn.base_dist


def _masked(weights: Any, mask: Any) -> Any:
    """Return the weights, with zeros where a mask excludes."""
    if isinstance(mask, bool):
        return weights if mask else 0.0
    return namespace(mask).where(mask, weights, 0.0)


def joint_power_mean(observed: Sequence[ObservedSite], alpha: float, datum: Sequence[int]) -> Array:
    """Return (1/α) log E[Π pᵅ] of every datum, over all of its elements and sites.

    Independent elements are multiplied; dependent ones need Normals with certain scales
    and a joint normal distribution of their locations. α = 0 gives the limit, the
    weighted sum of E[log p]. A weight s of a site is inside the power: its density enters
    as p^{αs}; 1/α stays outside.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha} is not between 0 (expectation) and 1 (predictive density)")
    counted = [site for site in observed if site.has_weight]
    total: Any = sum(_zeros_of(site, tuple(datum)) for site in observed if not site.has_weight)
    for group in _groups(counted) if alpha else ([site] for site in counted):
        for site, terms in _terms(group, alpha, tuple(datum)):
            total = total + _sum_to_data(site, terms, tuple(datum))
    return total


def _terms(
    group: Sequence[ObservedSite], alpha: float, datum: tuple[int, ...]
) -> Iterable[tuple[ObservedSite, Array]]:
    """Return pairs of a site and its terms, by element or vector of elements."""
    site = group[0]
    if not alpha:
        return [(site, _weighted(site.weights, site.expected(), site.shape))]
    if len(group) == 1:
        dependent = dependent_axes(site.parameters, site.axes_within_datum(datum))
        if not dependent:
            return [(site, _independent_terms(site, alpha))]
        return [(site, _dependent_terms([site], [dependent], alpha))]
    return [(site, _dependent_terms(group, _vector_axes(group, datum), alpha))]


def _zeros_of(site: ObservedSite, datum: tuple[int, ...]) -> Array:
    """Return zeros for a site that is excluded as a whole."""
    like = site.parameters[0].gaussian.mean if site.parameters else site.expected()
    zeros = namespace(like).zeros(site.shape, dtype=like.dtype, device=device(like))
    return _sum_to_data(site, zeros, datum)


def _groups(observed: list[ObservedSite]) -> list[list[ObservedSite]]:
    """Return groups of sites that depend on each other, directly or through others."""
    groups: list[list[ObservedSite]] = []
    for site in observed:
        met = [group for group in groups if any(_share(site, other) for other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(other for group in met for other in group), site])
    return groups


def _share(one: ObservedSite, other: ObservedSite) -> bool:
    return any(
        overlap(left.gaussian, right.gaussian)
        for left in one.parameters
        for right in other.parameters
    )


def _sum_to_data(site: ObservedSite, terms: Array, datum: tuple[int, ...]) -> Array:
    """Return the sums of terms over all axes but those of the data."""
    xp, rank = namespace(terms), len(terms.shape)
    dimensions = sorted(axis - site.events + rank for axis in datum)
    kept = [dimension for dimension in dimensions if dimension >= 0]
    rest = tuple(dimension for dimension in range(rank) if dimension not in kept)
    summed = xp.sum(terms, axis=rest) if rest else terms
    missing = (1,) * (len(dimensions) - len(kept))
    return xp.reshape(summed, (*missing, *summed.shape)) if missing else summed


# ---------------------------------------------------------------------------------------------
# Independent elements


def _independent_terms(site: ObservedSite, alpha: float) -> Array:
    weights = site.weights
    if not hasattr(weights, "shape"):
        return _weighted(weights, site.tempered(alpha * weights), site.shape)
    xp = namespace(weights)
    counted = xp.where(weights > 0, weights, xp.ones_like(weights))
    return _weighted(weights, site.tempered(alpha * counted), site.shape)


def _weighted(weights: Any, terms: Array, shape: tuple[int, ...]) -> Array:
    """Return terms times weights; zero where a weight is zero, whatever the term is."""
    xp = namespace(terms)
    terms = xp.broadcast_to(terms, shape)
    if not hasattr(weights, "shape"):
        return weights * terms
    return xp.where(weights > 0, weights * terms, xp.zeros_like(terms))


# ---------------------------------------------------------------------------------------------
# Dependent elements


def _vector_axes(group: Sequence[ObservedSite], datum: tuple[int, ...]) -> list[set[int]]:
    """Return for each dependent site the axes that become part of its vectors."""
    free = [_independent_axes(site, site.axes_within_datum(datum)) for site in group]
    sizes = {axis: {sizes.get(axis) for sizes in free} for axis in free[0]}
    # Batch axes with the same number of independent elements in all sites stay outside.
    independent = {axis for axis, numbers in sizes.items() if len(numbers) == 1}
    outside = independent | set(datum)
    return [
        {axis for axis in range(-len(site.shape), 0) if axis + site.events not in outside}
        for site in group
    ]


def _independent_axes(site: ObservedSite, inner: tuple[int, ...]) -> dict[int, int]:
    """Return the batch axes of independent elements, with their sizes."""
    free = set(inner) - dependent_axes(site.parameters, inner)
    return {axis + site.events: site.shape[axis] for axis in free if axis + site.events < 0}


def _dependent_terms(
    group: Sequence[ObservedSite], vector_axes: Sequence[set[int]], alpha: float
) -> Array:
    """Return terms of dependent elements from the joint law of their locations."""
    layouts = [
        Layout(site.shape, tuple(sorted(axes)))
        for site, axes in zip(group, vector_axes, strict=True)
    ]
    locations = [_location(site, group) for site in group]
    _check_same_order(locations, group)
    triples = zip(group, layouts, locations, strict=True)
    vectors = [_vector(*triple, group) for triple in triples]
    whole = concatenate(vectors, -1) if len(vectors) > 1 else vectors[0]
    try:
        covariance = whole.joint_covariance()
    except UnsupportedMoments as error:
        raise _dependence_error(group, error.cause) from None
    arrays = (_arrays(site, layout) for site, layout in zip(group, layouts, strict=True))
    residual, scale, weights = (_side_by_side(kind) for kind in zip(*arrays, strict=True))
    terms = log_mean_of_normal_powers(residual, covariance, scale, alpha * weights) / alpha
    return layouts[0].from_vectors(terms)


def _location(site: ObservedSite, group: Sequence[ObservedSite]) -> Gaussian:
    """Return the random part of a residual of a Normal with certain scale."""
    if site.normal is None or is_value(site.normal[2]):
        what = f"a {site.family}" if site.normal is None else "a Normal with a random scale"
        raise _dependence_error(
            group, f"'{site.name}' is {what}, of which no joint density is known"
        )
    value, loc, _ = site.normal
    both = is_value(value) and is_value(loc)
    random: Any = subtract(value, loc) if both else value if is_value(value) else loc
    check_gaussian(random, f"site '{site.name}'")
    return random


def _check_same_order(locations: Sequence[Gaussian], group: Sequence[ObservedSite]) -> None:
    if any(is_rearranged(left, right) for left, right in combinations(locations, 2)):
        cause = "they are not computed from one value of what they share, in the order of the data"
        raise _dependence_error(group, cause)


def _vector(
    site: ObservedSite, layout: Layout, location: Gaussian, group: Sequence[ObservedSite]
) -> Gaussian:
    """Return a location as vectors with a covariance; raise if it is unknown."""
    vector = layout.vector(location)
    if vector is None:
        axes = tuple(axis for axis in layout.vector_axes if site.shape[axis] > 1)
        cause = f"that of the elements {site.shape} of '{site.name}' along the axes {axes} is not"
        raise _dependence_error(group, cause)
    return vector


def _arrays(site: ObservedSite, layout: Layout) -> tuple[Array, Array, Array]:
    """Return mean residual, scale and weights as vectors."""
    assert site.normal is not None, "checked before"
    value, loc, scale = site.normal
    residual = _mean(value) - _mean(loc)
    zero = namespace(residual).zeros_like(residual)
    return (
        layout.to_vectors(residual),
        layout.to_vectors(scale + zero),
        layout.to_vectors(site.weights + zero),
    )


def _mean(operand: Any) -> Any:
    return operand.mean if isinstance(operand, Gaussian) else operand


def _side_by_side(arrays: Sequence[Array]) -> Array:
    return namespace(*arrays).concat(list(arrays), axis=-1) if len(arrays) > 1 else arrays[0]


def _dependence_error(group: Sequence[ObservedSite], cause: str) -> UnsupportedMoments:
    names = ", ".join(f"'{site.name}'" for site in group)
    several = f"the sites {names}" if len(group) > 1 else f"the elements of site {names}"
    sites = frozenset().union(*(site.sites for site in group))
    one = len(group) == 1 and group[0].parameters[0].gaussian.propagation.has_full_covariance
    diagonal = "; covariance='diagonal' takes the features of one value as independent" * one
    return UnsupportedMoments(
        f"{several} may depend on each other within a datum, and the mean of a power of their "
        f"product is known of Normals with certain scales and known covariances: {cause}",
        sites=sites,
        remedy=f"{SAMPLED}; or {_plate_advice(group)}{diagonal}",
    )


def _plate_advice(group: Sequence[ObservedSite]) -> str:
    """Return an advice for users: how elements become data of their own."""
    if plates := sorted({plate for site in group for plate in site.plates}):
        names = ", ".join(map(repr, plates))
        return (
            f"make the elements of plate {names} data, around all that is observed, without datum="
        )
    events = " in place of .to_event()" if any(site.events for site in group) else ""
    return f"make the elements data: put them in a plate{events}"
