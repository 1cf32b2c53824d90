"""A trained program as linear response asks it: latent sites, expectations, perturbations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import namespace, to_numpy
from moment_calculus.operations.shapes.coordinates import coordinates_of
from moment_calculus.predictions.moments import Moments
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.deferred import Composite
from moment_inference.errors import not_gaussian
from moment_inference.host import (
    Linearised,
    Perturbation,
    Program,
    Quantity,
    Site,
    Tree,
    plate_axes,
)
from moment_inference.response.data import Data
from moment_inference.response.random_parameters import RandomParameters

LONG_AXIS = 100  # shortest axis without a plate whose elements may be independent of each other


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
class Quantities:
    """Expectations that a user asks for, concatenated to one vector."""

    functional: Linearised  # all of them, flat
    shapes: Sequence[tuple[int, ...]]
    restructure: Callable[[list[Any]], Tree]  # arranges one item for each like the user's results

    @classmethod
    def of(cls, program: Program, function: Callable[[Any], Tree]) -> Quantities:
        """Return the arrays that a function makes of a program."""
        return cls(program.linearised(function), *program.structure(function))

    @property
    def slices(self) -> list[slice]:
        """Return the slice of each expectation in the functional."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        return [slice(*ends[at : at + 2]) for at in range(len(self.shapes))]

    def parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """Split an array [flat, ...] into one array for each expectation."""
        pairs = zip(self.slices, self.shapes, strict=True)
        return [flat[part].reshape(shape + flat.shape[1:]) for part, shape in pairs]


class Problem:
    """Model, guide and data at trained parameters."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._weights: dict[str | None, Perturbation] = {}

    def context(self) -> AbstractContextManager:
        """Return the context in which the framework has the parameters, in their precision."""
        return self.program.context()

    def array(self, values: Any) -> Any:
        """Return numbers as the framework's array in the precision of the parameters."""
        return self.program.array(values)

    @cached_property
    def _latent_sites(self) -> dict[str, Site]:
        sites = self.program.sites.items()
        return {name: site for name, site in sites if not site["is_observed"]}

    @cached_property
    def latents(self) -> list[Latent]:
        """Return the latent sites, in the order of their coordinates."""
        with self.context():
            values = self.program.latent_values([*self._latent_sites])
            return [self._latent(site, values[name]) for name, site in self._latent_sites.items()]

    def _latent(self, site: Site, value: Any) -> Latent:
        loc, scale, to_support, log_slope = self._coordinates(site, value)
        batch = len(site["fn"].batch_shape)
        plates = {name: batch + axis for name, (axis, _) in plate_axes(site).items()}
        return Latent(
            site["name"],
            to_numpy(loc, np.float64),
            np.broadcast_to(to_numpy(scale, np.float64), tuple(loc.shape)),
            self._within_context(to_support),
            self._within_context(log_slope),
            plates,
            not self.program.mixes_elements(to_support),
        )

    def _within_context(self, function: Callable) -> Callable:
        def computed(points: Any) -> Any:
            with self.context():
                return function(points)

        return computed

    def _coordinates(self, site: Site, value: Any) -> tuple[Any, Any, Callable, Callable]:
        """Return mean and scale of coordinates, their map to the support, its log-slope.

        The log-slope is the log of the absolute determinant of the map's Jacobian, by
        element if the map works by element.
        """
        coordinates = coordinates_of(value)
        if coordinates is not None or not hasattr(value, "gaussian"):
            transform = self.program.transform(site)
            loc = transform.inv(value) if coordinates is None else coordinates.mean
            scale = None if coordinates is None else coordinates.variance

            def log_determinant(points: Any) -> Any:
                return transform.log_abs_det_jacobian(points, transform(points))

            return loc, _root(scale, loc), transform, log_determinant
        base = value.base if isinstance(value, Deferred) else value
        if not isinstance(base, Gaussian):
            raise not_gaussian(site["name"])
        to_support = value.function if isinstance(value, Deferred) else lambda points: points

        def log_slope(points: Any) -> Any:
            xp = namespace(points)
            return xp.log(xp.abs(self.program.slope(to_support, points)))

        return base.mean, _root(base.variance, base.mean), to_support, log_slope

    @cached_property
    def locations(self) -> Linearised:
        """Return the means of all coordinates."""
        sites = self._latent_sites

        def means(program: Program) -> list[Any]:
            values = program.latent_values([*sites])
            return [self._coordinates(site, values[name])[0] for name, site in sites.items()]

        return self.program.linearised(means)

    def quantities(self, of: Quantity, args: tuple, kwargs: Mapping[str, Any]) -> Quantities:
        """Return the expectations of a site or function; without arguments, on the data."""
        with self.context():
            return Quantities.of(self.program, lambda each: each.expectation(of, args, kwargs))

    def predictive(self, args: tuple, kwargs: Mapping[str, Any]) -> CorrectedPredictions:
        """Return what the model observes with other arguments, or with the data."""
        with self.context():
            return CorrectedPredictions(self.program, args, kwargs)

    def _with_draws(
        self, values: Mapping[str, Any], args: tuple, kwargs: Mapping[str, Any]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Return the model with its arguments, and draws [draws, ...] as arrays of NumPy."""
        arrays = {name: to_numpy(value) for name, value in values.items()}
        first = {name: value[0] for name, value in arrays.items()}
        return self.program.with_draws(first, args, kwargs), arrays

    def log_joint(self, values: Mapping[str, Any]) -> np.ndarray:
        """Return the joint log density [draws] of draws by latent site, and observations."""
        with self.program.evaluation():
            model, arrays = self._with_draws(values, (), {})
            return model.log_joint(arrays)

    def quantity_of_draws(
        self, of: Quantity, values: Mapping[str, Any], args: tuple, kwargs: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Tree]]:
        """Return a site, or function of sites, for each draw, and what arranges results alike."""
        with self.program.evaluation():
            model, arrays = self._with_draws(values, args, kwargs)
            return model.quantity(of, arrays)

    def weights_of_data(self, datum: str | None) -> Perturbation:
        """Return the perturbation of the weights of the data, of a plate's elements."""
        if datum not in self._weights:  # kept, for influence and jackknife
            self._weights[datum] = self._perturbed_weights(datum)
        return self._weights[datum]

    def _perturbed_weights(self, datum: str | None) -> Perturbation:
        with self.context():
            data = Data.from_sites(self.program.sites, self.program.is_factor, datum)
            data.check_guide(self.program.guide_sites())

            def change(program: Program, numbers: Mapping[Any, Any]) -> Program:
                return program.reweighted(data, 1 + numbers[None])

            return self.program.perturbed({None: data.shape}, change)

    def prior_parameters(self) -> Perturbation:
        """Return the perturbation that adds to the parameters of priors, by (site, parameter)."""
        with self.context():
            shapes = self.program.prior_parameters()
            return self.program.perturbed(shapes, lambda each, numbers: each.with_priors(numbers))


def _root(variance: Any, loc: Any) -> Any:
    """Return a standard deviation; zeros for None."""
    xp = namespace(loc)
    return xp.zeros_like(loc) if variance is None else xp.sqrt(variance)


class CorrectedPredictions:
    """The sites that a model observes: their likelihoods are functions of Gaussian sources."""

    def __init__(self, program: Program, args: tuple, kwargs: Mapping[str, Any]) -> None:
        def means(program: Program) -> list[Any]:
            sites = program.sites_to_predict(args, kwargs)
            return [part.mean for part in _random_parameters(program, sites).values()]

        self._program = program
        self._sites = program.sites_to_predict(args, kwargs)
        self._parts = _random_parameters(program, self._sites)
        shapes = [tuple(part.mean.shape) for part in self._parts.values()]
        self.sources = Quantities(program.linearised(means), shapes, lambda parts: parts)
        # For each source, whether the covariances over its trailing axis are needed.
        self.joint = [part.needs_covariance for part in self._parts.values()]

    def corrected(self, moments: Sequence[Moments]) -> dict[str, Any]:
        """Return the predictions by site, with these moments of the sources."""
        pairs = zip(self._parts.items(), moments, strict=True)
        made = {name: part.with_gaussian_moments(found, name) for (name, part), found in pairs}
        return {
            name: self._program.prediction(name, site, made.get(name, []))
            for name, site in self._sites.items()
        }


def _random_parameters(program: Program, sites: Mapping[str, Site]) -> dict[str, RandomParameters]:
    """Return the Gaussians of every site that has random parameters."""
    parameters = {name: program.random_parameters(site) for name, site in sites.items()}
    return {
        name: RandomParameters(
            [value for value, _ in parts],
            [1 if isinstance(value, Composite) else axes for value, axes in parts],
        )
        for name, parts in parameters.items()
        if parts
    }
