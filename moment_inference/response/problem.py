"""What a front end supplies about model, guide and data, and the errors of linear response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.pareto import EVEN, FEW, ImportanceWeights, largest_reliable_shape
from moment_calculus.predictions.moments import Moments
from moment_inference.optimisation.rounds import DeterministicLoss

LONG_AXIS = 100  # shortest axis without a plate whose elements may be independent of each other
Quantity = str | Callable[[dict[str, Any]], Any]  # a site, or a function of the model's sites


class Functional(Protocol):
    """A vector that depends on the parameters, with its Jacobian G [d, n] at the optimum."""

    @property
    def value(self) -> np.ndarray:
        """The vector at the optimum, [d]."""

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Rows times G.

        Args:
            rows: [k, d].

        Returns:
            [k, parameters].
        """

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Rows times the transpose of G.

        Args:
            rows: [k, parameters].

        Returns:
            [k, d].
        """


@dataclass(frozen=True)
class Latent:
    """A latent site that its guide makes a function of Gaussian coordinates."""

    name: str
    loc: np.ndarray  # mean of the coordinates, of the site's unconstrained shape
    scale: np.ndarray  # their standard deviation in the guide, of the same shape
    # Makes values of the site from coordinates, arrays of the framework with further
    # leading axes.
    to_support: Callable[[Any], Any]
    log_slope: Callable[[Any], Any]  # log |derivative| or log |Jacobian determinant|
    plates: Mapping[str, int]  # axis of each plate around the site
    is_elementwise: bool = True  # False if to_support mixes coordinates, as for a simplex

    @property
    def axes(self) -> dict[str | int, int]:
        """Return the axis of each plate, and long axes without a plate by size."""
        free = set(range(self.loc.ndim)) - {*self.plates.values()}
        sizes = {self.loc.shape[axis]: axis for axis in free if self.loc.shape[axis] >= LONG_AXIS}
        return {**self.plates, **sizes}


@dataclass(frozen=True)
class ParameterArray:
    """One array of parameters."""

    name: str  # in the framework
    size: int  # number of elements
    location: str | None = None  # the leaf, of the same size, whose scale this one is


@dataclass(frozen=True)
class Quantities:
    """Expectations that a user asks for, concatenated to one vector."""

    functional: Functional  # all of them, flat
    shapes: Sequence[tuple[int, ...]]
    restructure: Callable[[list[Any]], Any]  # arranges one item for each like the user's results

    @property
    def slices(self) -> list[slice]:
        """Return the slice of each expectation in the functional."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        return [slice(*ends[at : at + 2]) for at in range(len(self.shapes))]

    def parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """Split an array [flat, ...] into one array for each expectation."""
        pairs = zip(self.slices, self.shapes, strict=True)
        return [flat[part].reshape(shape + flat.shape[1:]) for part, shape in pairs]


class Perturbation(Protocol):
    """A way to change the model by numbers ε, which are zero for the model as it is."""

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """The derivative ∂/∂ε of the loss's slope along directions.

        Args:
            rows: the directions, [k, parameters].

        Returns:
            Arrays [k, ...], by the key of what ε changes.
        """


class Predictive(Protocol):
    """The sites that a model observes: their likelihoods are functions of Gaussian sources."""

    @property
    def sources(self) -> Quantities:
        """The means of all sources."""

    @property
    def joint(self) -> Sequence[bool]:
        """For each source, whether the covariances over its trailing axis are needed."""

    def corrected(self, moments: list[Moments]) -> dict[str, Any]:
        """Predictions by site.

        Args:
            moments: of the sources.
        """


class Problem(Protocol):
    """Model, guide and data at trained parameters, in one framework."""

    @property
    def objective(self) -> DeterministicLoss:
        """The loss."""

    def objective_in_double(self) -> DeterministicLoss:
        """The loss in double precision, which tells a flat direction from rounding."""

    @property
    def parameters(self) -> np.ndarray:
        """The parameters, [n]."""

    @property
    def latents(self) -> Sequence[Latent]:
        """The latent sites, in the order of their coordinates."""

    @property
    def leaves(self) -> Sequence[ParameterArray]:
        """The parameters, in order."""

    @property
    def locations(self) -> Functional:
        """The means of all coordinates."""

    def quantities(self, of: Quantity, args: tuple, named: Mapping[str, Any]) -> Quantities:
        """Expectations of sites, or of a function of sites.

        Args:
            of: a site of the model, or the function.
            args: positional arguments of the model; without any arguments those of the
                data.
            named: its keyword arguments.
        """

    def predictive(self, args: tuple, named: Mapping[str, Any]) -> Predictive:
        """What the model observes with other arguments.

        Args:
            args: positional arguments of the model; without any arguments those of the
                data.
            named: its keyword arguments.
        """

    def log_joint(self, values: Mapping[str, Any]) -> np.ndarray:
        """Joint log density of draws of the latent sites and of the observations, [draws].

        Args:
            values: by site, on the supports, the framework's arrays [draws, ...].
        """

    def quantity_of_draws(
        self, of: Quantity, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """Values of a site, or of a function of sites, for each draw.

        Args:
            of: a site of the model, or the function.
            values: by site, as for ``log_joint``.
            args: positional arguments of the model; without any arguments those of the
                data.
            named: its keyword arguments.

        Returns:
            Arrays [draws, ...], and a function that arranges one item for each array as
            the user's function returns them.
        """

    def weights_of_data(self, datum: str | None) -> Perturbation:
        """The perturbation of the weights of the data, under the key None.

        Args:
            datum: the plate whose elements they are; by default all around every
                observation.
        """

    def prior_parameters(self) -> Perturbation:
        """The perturbation that adds to the parameters of priors, by (site, parameter)."""

    def precision(self) -> Any:
        """A context in which the framework computes in the precision of the parameters."""

    def array(self, values: np.ndarray) -> Any:
        """An array of the framework with these values."""


Plates = Mapping[str, tuple[int, int]]  # by name: axis, counted from the right, and size


@dataclass(frozen=True)
class Data:
    """The data of a model: the elements of the plates around its observations."""

    shape: tuple[int, ...]  # shape of the weights of the data
    plates: tuple[str, ...]  # from left to right; empty if one observed site holds the data
    site: str = ""  # that site; empty if there are plates
    local_latents: tuple[str, ...] = ()  # latent sites inside the plates, which belong to the data

    @classmethod
    def from_sites(
        cls, sites: Mapping[str, Any], is_factor: Callable[[Any], bool], datum: str | None
    ) -> Data:
        """Return the data of a model from its sites; raise ValueError if they are not clear.

        They are the elements of the plate ``datum``; without it, those of all plates
        around every observation, or without plates those of the one observed site.
        Factors are no data.
        """
        observed = {
            name: site
            for name, site in sites.items()
            if site["is_observed"] and not is_factor(site)
        }
        if not observed:
            raise ValueError("the model observes nothing: there are no data to weigh")
        plates = {name: plate_axes(site) for name, site in observed.items()}
        names = {datum} if datum is not None else set.intersection(*map(set, plates.values()))
        if not names and len(observed) == 1:
            ((name, site),) = observed.items()
            return cls(tuple(site["fn"].batch_shape), (), name)
        first = next((axes for axes in plates.values() if names <= axes.keys()), None)
        if not names or first is None:
            raise _unclear(plates, datum)
        ordered = tuple(sorted(names, key=lambda plate: first[plate][0]))
        local_latents = [
            name
            for name, site in sites.items()
            if not site["is_observed"] and names <= plate_axes(site).keys()
        ]
        return cls(
            tuple(first[plate][1] for plate in ordered), ordered, local_latents=tuple(local_latents)
        )

    def weight_shape(self, name: str, site: Any) -> tuple[int, ...] | None:
        """Return the shape of the weights of a site's log density; None for none."""
        if not self.plates:
            return self.shape if name == self.site else None
        plates = plate_axes(site)
        if not plates.keys() >= {*self.plates}:
            return None
        return _shape([plates[plate] for plate in self.plates])

    def check_guide(self, sites: Mapping[str, Any]) -> None:
        """Raise ValueError unless the guide samples local sites inside the plates."""
        for name in self.local_latents:
            if name not in sites or self.weight_shape(name, sites[name]) is None:
                listed = ", ".join(map(repr, self.plates))
                raise ValueError(
                    f"the latent site '{name}' belongs to the data, and the guide does not sample "
                    f"it inside the plate {listed}: what a datum adds to the loss is not known; "
                    "use DVIGuide or AutoNormal"
                )


def plate_axes(site: Any) -> Plates:
    """Return axis (negative) and size of each vectorised plate around a site."""
    return {
        frame.name: (frame.dim, frame.size)
        for frame in site["cond_indep_stack"]
        if frame.dim is not None
    }


def _unclear(plates: Mapping[str, Plates], datum: str | None) -> ValueError:
    listed = "; ".join(
        f"'{name}': {', '.join(map(repr, axes)) or 'none'}" for name, axes in plates.items()
    )
    problem = "no plate is around all that is observed" if datum is None else f"{datum!r} is none"
    return ValueError(
        f"it is not clear what one datum is: {problem} (vectorised plates by site: {listed}); put "
        "the data into a plate and name it, datum=...; sites of a loop have no weights"
    )


def _shape(axes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the shape with the sizes of plates on their axes and ones elsewhere."""
    shape = [1] * -min(axis for axis, _ in axes)
    for axis, size in axes:
        shape[axis] = size
    return tuple(shape)


def count_masked(fn: Any, mask: Any = None) -> int:
    """Return how many elements of an observation a mask hides, at any depth."""
    shown, masks = np.ones(fn.batch_shape + fn.event_shape, bool), [(mask, fn.event_dim)]
    while hasattr(fn, "base_dist") and not hasattr(fn, "transforms"):
        masks.append((getattr(fn, "_mask", None), fn.event_dim))
        fn = fn.base_dist
    for part, event_dim in masks:
        if part is not None:
            batch = np.asarray(part.cpu() if hasattr(part, "cpu") else part)
            shown = shown & batch.reshape(batch.shape + (1,) * event_dim)
    return int(np.sum(~shown))


class NotAnOptimum(ValueError):
    """The parameters are no optimum of the loss, so that its curvature there says nothing."""


class NarrowerVarianceWarning(UserWarning):
    """Corrected variances are smaller than the guide's, which is rare for a mean-field guide."""


class FlatDirection(ValueError):
    """A quantity depends on a direction that neither priors nor data determine."""


class Indefinite(Exception):
    """A matrix has a direction [n] of negative curvature."""

    def __init__(self, eigenvalue: float, direction: np.ndarray) -> None:
        super().__init__(eigenvalue)
        self.eigenvalue, self.direction = eigenvalue, direction


class Undetermined(Exception):
    """A quantity depends on a direction [n] along which the loss is flat."""

    def __init__(self, direction: np.ndarray) -> None:
        super().__init__()
        self.direction = direction


WITHOUT_NOISE = (
    "linear response takes all data at once, and an objective without draws, such as "
    "objective=DeterministicELBO()"
)


def parameter_names_error(given: Iterable[str], known: Iterable[str]) -> ValueError:
    """Return the error for parameters with other names than those of model and guide."""
    listed = [", ".join(map(repr, sorted(names))) or "nothing" for names in (given, known)]
    return ValueError(
        f"params has {listed[0]}; model and guide have {listed[1]}: pass what "
        "fit(model, guide, ...).params is"
    )


def parameter_shape_error(name: str, given: Iterable[int], known: Iterable[int]) -> ValueError:
    """Return the error for a parameter with another shape than in model and guide."""
    return ValueError(
        f"parameter '{name}' has the shape {tuple(given)} in params, and {tuple(known)} in model "
        "and guide"
    )


def not_gaussian(site: str) -> UnsupportedMoments:
    """Return the error for a site that is no elementwise function of a Gaussian."""
    return UnsupportedMoments(
        f"the guide's site '{site}' is no elementwise function of a Gaussian: it has no "
        "unconstrained coordinates",
        sites=[site],
        remedy="use DVIGuide, or another guide whose sites are Gaussian on the unconstrained space",
    )


def check_reliable(weights: ImportanceWeights, source: str, sites: Iterable[str]) -> None:
    """Raise UnsupportedMoments if weights of draws of ``source`` are unreliable."""
    if weights.is_reliable:
        return
    limit = largest_reliable_shape(weights.log.shape[-1])
    raise UnsupportedMoments(
        f"the importance weights of draws of {source} cannot be trusted: their k̂ is {weights}; "
        f"they can with k̂ up to {limit:.2f} and {FEW:.0%} effective, or more than {EVEN:.0%} "
        "effective",
        sites=sites,
        remedy="leave importance_weights out for what the approximation itself says, or use other "
        "coordinates (centred where data are many, else not), a guide with covariances, or NUTS",
    )


def unknown_site(name: str, sites: Iterable[str]) -> ValueError:
    """Return the error for a name that is no site of the model."""
    return ValueError(f"{name!r} is no site of the model; there are {', '.join(map(repr, sites))}")
