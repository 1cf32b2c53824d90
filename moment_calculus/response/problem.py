"""What a host tells about a model and a guide at trained parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from moment_calculus.hosts.moments import Moments
from moment_calculus.optimisation.rounds import Objective
from moment_calculus.response.functional import Functional
from moment_calculus.response.latents import Latent, Leaf

Quantity = str | Callable[[dict[str, Any]], Any]  # a site, or a function of the model's sites


@dataclass(frozen=True)
class Quantities:
    """Expectations of what a user asks for, one after the other.

    Args:
        functional: all of them, flat.
        shapes: of each.
        rebuilt: makes of something for each what the user's function returns.
    """

    functional: Functional
    shapes: Sequence[tuple[int, ...]]
    rebuilt: Callable[[list[Any]], Any]

    @property
    def slices(self) -> list[slice]:
        """Where each is in the functional."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        return [slice(*ends[at : at + 2]) for at in range(len(self.shapes))]

    def parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """What is flat along the first axis, for each quantity in its shape."""
        pairs = zip(self.slices, self.shapes, strict=True)
        return [flat[part].reshape(shape + flat.shape[1:]) for part, shape in pairs]


class Perturbation(Protocol):
    """A way to change the model, by numbers ε that are zero for the model as it is."""

    def along(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """∂/∂ε of the loss's slope along directions.

        Args:
            rows: the directions, [k, parameters].

        Returns:
            Arrays [k, ...] by what is changed.
        """


class Predictive(Protocol):
    """What a model observes: distributions whose parameters are functions of Gaussian sources."""

    @property
    def sources(self) -> Quantities:
        """The means of all sources."""

    @property
    def joint(self) -> Sequence[bool]:
        """Of each source, whether the covariances over its trailing axis count."""

    def corrected(self, moments: list[Moments]) -> dict[str, Any]:
        """Predictions by site.

        Args:
            moments: of the sources.
        """


class Problem(Protocol):
    """Model, guide and data at trained parameters, in a host."""

    @property
    def objective(self) -> Objective:
        """The loss."""

    @property
    def place(self) -> np.ndarray:
        """The parameters, [n]."""

    @property
    def latents(self) -> Sequence[Latent]:
        """The latent sites, in the order of their coordinates."""

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The parameters, in order."""

    @property
    def locations(self) -> Functional:
        """The means of all coordinates."""

    def quantities(self, of: Quantity, args: tuple, named: Mapping[str, Any]) -> Quantities:
        """Expectations of sites, or of a function of sites.

        Args:
            of: a site of the model, or the function.
            args: of the model; with ``named`` empty those of the data.
            named: likewise, by name.
        """

    def predictive(self, args: tuple, named: Mapping[str, Any]) -> Predictive:
        """What the model observes with other arguments.

        Args:
            args: of the model; with ``named`` empty those of the data.
            named: likewise, by name.
        """

    def log_joint(self, values: Mapping[str, Any]) -> np.ndarray:
        """Log density of draws of the latent sites and the observations together, [draws].

        Args:
            values: by site, on the supports, arrays of the host [draws, ...].
        """

    def of_draws(
        self, of: Quantity, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """What a site is, or what a function of sites makes, of each draw.

        Args:
            of: a site of the model, or the function.
            values: by site, as of ``log_joint``.
            args: of the model; with ``named`` empty those of the data.
            named: likewise, by name.

        Returns:
            Arrays [draws, ...], and what makes of something for each what the function returns.
        """

    def weights_of_data(self, datum: str | None) -> Perturbation:
        """The weights of the data, under the key None.

        Args:
            datum: the plate whose elements they are; by default all around every observation.
        """

    def prior_parameters(self) -> Perturbation:
        """What is added to the parameters of the priors, under the keys (site, parameter)."""

    def precision(self) -> Any:
        """A context in which the host computes in the precision of the parameters."""

    def array(self, values: np.ndarray) -> Any:
        """An array of the host."""
