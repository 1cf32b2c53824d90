"""A Pyro model and guide at trained parameters, as linear response asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from torch.distributions import biject_to

from moment_calculus.hosts.wording import not_in_guide
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.optimisation.rounds import Objective
from moment_calculus.response.data import plates_of
from moment_calculus.response.latents import Latent, Leaf
from moment_calculus.response.problem import Perturbation, Quantities, Quantity
from moment_calculus.response.wording import WITHOUT_NOISE, not_gaussian
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.draws.model import PyroModel
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.fitting.objective import FlatLoss
from pyro_moments.fitting.parameters import as_array
from pyro_moments.fitting.precision import doubled
from pyro_moments.fitting.storing import sampled_sites
from pyro_moments.prediction.predict import observing_trace
from pyro_moments.response.functional import FlatFunctional
from pyro_moments.response.held import Held
from pyro_moments.response.perturbations import Change, Perturbed, data_weights, prior_shifts
from pyro_moments.response.predictive import Predictive
from pyro_moments.response.priors import prior_parameters
from pyro_moments.response.quantities import Told, expectations, rebuilt
from pyro_moments.response.surroundings import Surroundings
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.posteriors import without_wrappers
from pyro_moments.sites.transformed import mixes


@dataclass(frozen=True)
class PyroProblem:
    """Model, guide and data at trained parameters.

    Args:
        elbo: that was minimised.
        model: the model.
        guide: the guide.
        data: arguments of both.
        named: likewise, by name.
        loss: of the parameters.
        held: the parameters.
    """

    elbo: Any
    model: Callable
    guide: Callable
    data: tuple
    named: dict[str, Any]
    loss: FlatLoss
    held: Held

    def __post_init__(self) -> None:
        with self.held():
            self.loss.check_deterministic(WITHOUT_NOISE)

    @cached_property
    def objective(self) -> Objective:
        """The loss."""
        with self.held():
            return self.loss.objective().within(self.held)

    @property
    def place(self) -> np.ndarray:
        """The parameters."""
        return self.held.place

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The parameters, in order."""
        scales = self.loss.scales
        return [
            Leaf(name, leaf.numel(), scales.get(name))
            for name, leaf in self.loss.parameters.leaves.items()
        ]

    @cached_property
    def _sites(self) -> dict[str, Any]:
        with self.held():
            return sampled_sites(self.model, self.data, self.named)

    @cached_property
    def latents(self) -> list[Latent]:
        """The latent sites, in the order of their coordinates."""
        with self.held(), torch.no_grad():
            values = self._values()
            return [self._latent(self._sites[name], value) for name, value in values.items()]

    def _latent(self, site: Any, value: Any) -> Latent:
        loc, scale, to_support, log_slope = _location(site, value)

        def within(function: Callable) -> Callable:
            def computed(points: torch.Tensor) -> torch.Tensor:
                with self.held(), torch.no_grad():
                    return function(points).detach()

            return computed

        batch = len(site["fn"].batch_shape)
        plates = {name: batch + axis for name, (axis, _) in plates_of(site).items()}
        return Latent(
            site["name"],
            as_array(loc).reshape(tuple(loc.shape)),
            as_array(scale.expand(loc.shape)).reshape(tuple(loc.shape)),
            within(to_support),
            within(log_slope),
            plates,
            isinstance(value, MomentTensor) or not mixes(biject_to(site["fn"].support)),
        )

    @cached_property
    def locations(self) -> FlatFunctional:
        """The means of all coordinates."""

        def at() -> torch.Tensor:
            values = self._values()
            locs = [_location(self._sites[name], value)[0] for name, value in values.items()]
            return torch.cat([self.held.array([]), *(loc.reshape(-1) for loc in locs)])

        return FlatFunctional(at, self.held)

    def _nodes(self) -> Mapping[str, Any]:
        """What the guide does, with moments for the latent sites."""
        with MomentMessenger(self.propagation, guide=self.guide):
            return poutine.trace(self.guide).get_trace(*self.data, **self.named).nodes

    def _sampled(self) -> dict[str, Any]:
        """The sites that the guide samples itself, not as functions of others."""
        with torch.no_grad():
            sites = [site for site in self._nodes().values() if site["type"] == "sample"]
        return {model_site(site): site for site in sites if not _is_function(site)}

    def _values(self) -> dict[str, Any]:
        """The live values of the latent sites, of which the guide alone tells."""
        nodes = self._nodes()
        latent = [name for name, site in self._sites.items() if not site["is_observed"]]
        for name in latent:
            if name not in nodes:
                raise not_in_guide(name)
        return {name: nodes[name]["value"] for name in latent}

    @property
    def propagation(self) -> Propagation:
        """How randomness flows in the objective."""
        return getattr(self.elbo, "propagation", None) or propagation_of("full", "exact")

    def _told(self, args: tuple, named: Mapping[str, Any]) -> Told:
        """What the model does with other arguments; with none, with the data."""
        given, by_name = (args, dict(named)) if args or named else (self.data, self.named)
        if self.held.double:
            given, by_name = doubled(given), doubled(by_name)
        return lambda: observing_trace(self.model, self.guide, given, by_name, self.propagation)

    def quantities(self, of: Quantity, args: tuple, named: Mapping[str, Any]) -> Quantities:
        """Expectations of sites, or of a function of sites."""
        with self.held():
            return expectations(of, self._told(args, named), self.held)

    def predictive(self, args: tuple, named: Mapping[str, Any]) -> Predictive:
        """What the model observes with other arguments.

        Args:
            args: of the model; with ``named`` empty those of the data.
            named: likewise, by name.
        """
        with self.held():
            return Predictive(self._told(args, named), self.held)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The context in which the model runs with draws."""
        return Surroundings(self.held, self.held.double, (self.model, self.guide))

    def _program(self, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]) -> Any:
        """The model with arguments, and draws of NumPy."""
        arrays = {name: value.detach().cpu().numpy() for name, value in values.items()}
        first = {name: value[0] for name, value in arrays.items()}
        given = (args, named) if args or named else (self.data, self.named)
        program = (self.model, *self.surroundings.arguments(*given))
        return PyroModel(*program, first, self.surroundings.device), arrays

    def log_joint(self, values: Mapping[str, Any]) -> np.ndarray:
        """Log density of draws of the latent sites and the observations together."""
        with self.surroundings():
            program, arrays = self._program(values, (), {})
            return program.log_joint(arrays)

    def of_draws(
        self, of: Quantity, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """What a site is, or what a function of sites makes, of each draw."""
        with self.surroundings():
            program, arrays = self._program(values, args, named)
            parts, tree = program.quantity(of, arrays)
        return parts, lambda found: rebuilt(found, tree)

    def weights_of_data(self, datum: str | None) -> Perturbation:
        """The weights of the data."""
        with self.held():
            return self._perturbed(data_weights(self._sites, self._sampled(), datum))

    def prior_parameters(self) -> Perturbation:
        """What is added to the parameters of the priors."""
        with self.held():
            shapes = prior_parameters(self.model, self._sites, self.data, self.named)
        return self._perturbed(prior_shifts(shapes))

    def _perturbed(self, change: Change) -> Perturbed:
        def loss(model: Callable, guide: Callable) -> Any:
            return self.elbo.differentiable_loss(model, guide, *self.data, **self.named)

        return Perturbed(loss, (self.model, self.guide), self.held, change)

    def precision(self) -> Any:
        """The context in which Pyro has the parameters, in their precision."""
        return self.held()

    def array(self, values: np.ndarray) -> torch.Tensor:
        """A tensor in the precision of the parameters, where they are."""
        return self.held.array(values)


def _is_function(site: Any) -> bool:
    is_delta = isinstance(without_wrappers(site["fn"]), dist.Delta)
    return is_delta and isinstance(site["value"], MomentTensor)


def _location(site: Any, value: Any) -> tuple[torch.Tensor, torch.Tensor, Callable, Callable]:
    """Mean and standard deviation of a site's coordinates, what takes them to its support.

    And the log of the absolute determinant of the last one's Jacobian, by element where there are
    elements.
    """
    if not isinstance(value, MomentTensor):
        transform = biject_to(site["fn"].support)
        loc = transform.inv(value)

        def log_determinant(points: torch.Tensor) -> torch.Tensor:
            return transform.log_abs_det_jacobian(points, transform(points))

        return loc, torch.zeros_like(loc), transform, log_determinant
    live = unwrap(value)
    base = live.base if isinstance(live, Deferred) else live
    if not isinstance(base, Gaussian):
        raise not_gaussian(site["name"])
    to_support = live.function if isinstance(live, Deferred) else lambda points: points

    def log_slope(points: torch.Tensor) -> torch.Tensor:
        slope = torch.func.jvp(to_support, (points,), (torch.ones_like(points),))[1]
        return slope.abs().log()

    return base.mean, torch.sqrt(base.variance), to_support, log_slope
