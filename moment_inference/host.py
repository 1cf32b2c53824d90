"""What a front end supplies: a program at fixed parameters, and its derivatives by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from moment_inference.optimisation.rounds import DeterministicLoss

Quantity = str | Callable[[dict[str, Any]], Any]  # a site, or a function of the model's sites
Site = Any  # the framework's message of a site, a dictionary
Plates = Mapping[str, tuple[int, int]]  # by name: axis, counted from the right, and size
Tree = Any  # nested containers of the framework's arrays


def plate_axes(site: Any) -> Plates:
    """Return axis (negative) and size of each vectorised plate around a site."""
    return {
        frame.name: (frame.dim, frame.size)
        for frame in site["cond_indep_stack"]
        if frame.dim is not None
    }


class Linearised(Protocol):
    """A vector that depends on the parameters, with its Jacobian G [d, n] at their values."""

    @property
    def value(self) -> np.ndarray:
        """The vector, [d]."""

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Rows [k, d] times G, [k, n]."""

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Rows [k, n] times the transpose of G, [k, d]."""


class Perturbation(Protocol):
    """A way to change a program by numbers ε, which are zero for the program as it is."""

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """The derivative ∂/∂ε of the loss's slope along directions.

        Args:
            rows: the directions, [k, parameters].

        Returns:
            Arrays [k, ...], by the key of what ε changes.
        """


@dataclass(frozen=True)
class ParameterArray:
    """One array of parameters."""

    name: str  # in the framework
    size: int  # number of elements
    location: str | None = None  # the array, of the same size, whose scale this one is


class Program(Protocol):
    """Model, guide, arguments and objective at fixed parameters [n], in one framework."""

    @property
    def parameters(self) -> np.ndarray:
        """The parameters as one vector, [n]."""

    @property
    def leaves(self) -> Sequence[ParameterArray]:
        """The arrays of parameters, in order."""

    @property
    def objective(self) -> DeterministicLoss:
        """The loss as a function of the parameters."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """The ``sample`` sites of a run of the model with the arguments."""

    def in_double(self) -> Program:
        """The same program in double precision."""

    def context(self) -> AbstractContextManager:
        """A context with the parameters and their precision, without gradients."""

    def array(self, values: Any) -> Any:
        """An array of the framework in the precision of the parameters."""

    def linearised(self, function: Callable[[Any], Tree]) -> Linearised:
        """What a function makes of the program, all arrays as one vector, by the parameters."""

    def structure(
        self, function: Callable[[Any], Tree]
    ) -> tuple[list[tuple[int, ...]], Callable[[list[Any]], Tree]]:
        """The shapes of a function's arrays, and what arranges one item for each alike."""

    def perturbed(
        self, shapes: Mapping[Any, tuple[int, ...]], change: Callable[[Any, Mapping], Any]
    ) -> Perturbation:
        """The perturbation by numbers of these shapes; ``change`` makes the changed program."""

    def guide_sites(self) -> Mapping[str, Site]:
        """The sites that the guide samples itself, not as functions of others."""

    def latent_values(self, names: Sequence[str]) -> dict[str, Any]:
        """The values of latent sites in the guide, with moments."""

    def expectation(self, of: Quantity, args: tuple, kwargs: Mapping[str, Any]) -> Tree:
        """The means of a site, or of a function of sites, by moment propagation.

        Args:
            of: a site of the model, or the function.
            args: positional arguments of the model; without any arguments its own.
            kwargs: its keyword arguments.
        """

    def sites_to_predict(self, args: tuple, kwargs: Mapping[str, Any]) -> Mapping[str, Site]:
        """The sites that are neither latent nor factors, with moments; arguments as above."""

    def random_parameters(self, site: Site) -> list[tuple[Any, int]]:
        """The random values behind a site, and how many trailing axes are of one element."""

    def prediction(self, name: str, site: Site, values: Sequence[Any]) -> Any:
        """The prediction of a site, with these for its random values."""

    def transform(self, site: Site) -> Any:
        """The framework's bijection from the unconstrained space to a site's support."""

    def slope(self, function: Callable, points: Any) -> Any:
        """The derivative of an elementwise function."""

    def mixes_elements(self, to_support: Any) -> bool:
        """Whether a function of coordinates is a transform that mixes them."""

    def is_factor(self, site: Site) -> bool:
        """Whether a site observes nothing."""

    def reweighted(self, data: Any, weights: Any) -> Program:
        """The program with weights of its data, see :class:`.response.data.Data`."""

    def prior_parameters(self) -> Mapping[tuple[str, str], tuple[int, ...]]:
        """The shapes of the priors' parameters that depend on no site, by (site, parameter)."""

    def with_priors(self, numbers: Mapping[tuple[str, str], Any]) -> Program:
        """The program with numbers added to the parameters of its priors."""

    def evaluation(self) -> AbstractContextManager:
        """A context in which :meth:`with_draws` computes."""

    def with_draws(
        self, first: Mapping[str, np.ndarray], args: tuple, kwargs: Mapping[str, Any]
    ) -> Any:
        """The model that runs with draws, :class:`.criticism.model_with_draws.ModelWithDraws`.

        Args:
            first: one draw of each latent site.
            args: positional arguments of the model; without any arguments its own.
            kwargs: its keyword arguments.
        """
