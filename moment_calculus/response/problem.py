"""What a front end supplies about model and guide at trained parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from moment_calculus.optimisation.rounds import DeterministicLoss
from moment_calculus.predictions.moments import Moments

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
