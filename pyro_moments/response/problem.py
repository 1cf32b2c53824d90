"""A Pyro model and guide at trained parameters, for linear response."""

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

from moment_calculus.errors import not_in_guide
from moment_calculus.optimisation.minimiser import check_deterministic
from moment_calculus.optimisation.rounds import DeterministicLoss
from moment_calculus.response.data import plate_axes
from moment_calculus.response.errors import WITHOUT_NOISE, not_gaussian
from moment_calculus.response.problem import (
    Latent,
    ParameterArray,
    Perturbation,
    Quantities,
    Quantity,
)
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.propagation import Propagation
from pyro_moments._host import tree_unflatten
from pyro_moments.draws.model import PyroModel
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.fitting.flat_loss import FlatLoss
from pyro_moments.fitting.parameters import as_array, to_float64
from pyro_moments.fitting.storing import sampled_sites
from pyro_moments.prediction.predict import moment_trace
from pyro_moments.response.derivatives import (
    Change,
    CorrectedPredictions,
    FlatFunctional,
    PerturbedLoss,
    RunModel,
    data_weights,
    expectations,
    prior_parameters,
    prior_shifts,
)
from pyro_moments.response.evaluation_context import EvaluationContext, FixedParameters
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.terms import mixes_elements, without_wrappers


@dataclass(frozen=True)
class PyroProblem:
    """Model, guide and data at trained parameters."""

    elbo: Any  # that was minimised
    model: Callable
    guide: Callable
    data: tuple  # arguments of model and guide
    named: dict[str, Any]  # their keyword arguments
    loss: FlatLoss
    fixed_parameters: FixedParameters

    def __post_init__(self) -> None:
        with self.fixed_parameters():
            check_deterministic(*self.loss.two_values(), WITHOUT_NOISE)

    @cached_property
    def objective(self) -> DeterministicLoss:
        """Return the loss of the flat parameters, at the held place."""
        with self.fixed_parameters():
            return self.loss.objective().within(self.fixed_parameters)

    @property
    def parameters(self) -> np.ndarray:
        """Return the parameters as one vector."""
        return self.fixed_parameters.vector

    @cached_property
    def leaves(self) -> list[ParameterArray]:
        """Return the parameters in order, each scale with the name of its location."""
        scales = self.loss.scales
        return [
            ParameterArray(name, leaf.numel(), scales.get(name))
            for name, leaf in self.loss.parameters.leaves.items()
        ]

    @cached_property
    def _sites(self) -> dict[str, Any]:
        with self.fixed_parameters():
            return sampled_sites(self.model, self.data, self.named)

    @cached_property
    def latents(self) -> list[Latent]:
        """Return the latent sites, in the order of their coordinates."""
        with self.fixed_parameters(), torch.no_grad():
            values = self._values()
            return [self._latent(self._sites[name], value) for name, value in values.items()]

    def _latent(self, site: Any, value: Any) -> Latent:
        loc, scale, to_support, log_slope = _location(site, value)

        def within(function: Callable) -> Callable:
            def computed(points: torch.Tensor) -> torch.Tensor:
                with self.fixed_parameters(), torch.no_grad():
                    return function(points).detach()

            return computed

        batch = len(site["fn"].batch_shape)
        plates = {name: batch + axis for name, (axis, _) in plate_axes(site).items()}
        return Latent(
            site["name"],
            as_array(loc).reshape(tuple(loc.shape)),
            as_array(scale.expand(loc.shape)).reshape(tuple(loc.shape)),
            within(to_support),
            within(log_slope),
            plates,
            isinstance(value, MomentTensor) or not mixes_elements(biject_to(site["fn"].support)),
        )

    @cached_property
    def locations(self) -> FlatFunctional:
        """Return the means of all coordinates."""

        def locs() -> list[torch.Tensor]:
            values = self._values().items()
            return [_location(self._sites[name], value)[0] for name, value in values]

        return FlatFunctional(locs, self.fixed_parameters)

    def _nodes(self) -> Mapping[str, Any]:
        """Return the sites of the guide, with moments for the latent sites."""
        with MomentMessenger(self.propagation, guide=self.guide):
            return poutine.trace(self.guide).get_trace(*self.data, **self.named).nodes

    def _sampled(self) -> dict[str, Any]:
        """Return the sites that the guide samples itself, not as functions of others."""
        with torch.no_grad():
            sites = [site for site in self._nodes().values() if site["type"] == "sample"]
        return {model_site(site): site for site in sites if not _is_random_delta(site)}

    def _values(self) -> dict[str, Any]:
        """Return the values of the latent sites with their graphs, from the guide alone."""
        nodes = self._nodes()
        latent = [name for name, site in self._sites.items() if not site["is_observed"]]
        for name in latent:
            if name not in nodes:
                raise not_in_guide(name)
        return {name: nodes[name]["value"] for name in latent}

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in the objective."""
        return getattr(self.elbo, "propagation", None) or propagation_of("full", "exact")

    def _run_model(self, args: tuple, named: Mapping[str, Any]) -> RunModel:
        """Return a function that runs the model with other arguments; with none, with the data."""
        arguments, by_name = (args, dict(named)) if args or named else (self.data, self.named)
        if self.fixed_parameters.double:
            arguments, by_name = to_float64(arguments), to_float64(by_name)
        return lambda: moment_trace(self.model, self.guide, arguments, by_name, self.propagation)

    def quantities(self, of: Quantity, args: tuple, named: Mapping[str, Any]) -> Quantities:
        """Return the expectations of sites, or of a function of sites."""
        with self.fixed_parameters():
            return expectations(of, self._run_model(args, named), self.fixed_parameters)

    def predictive(self, args: tuple, named: Mapping[str, Any]) -> CorrectedPredictions:
        """Return what the model observes with other arguments, or with the data."""
        with self.fixed_parameters():
            return CorrectedPredictions(self._run_model(args, named), self.fixed_parameters)

    @cached_property
    def context(self) -> EvaluationContext:
        """Return the context in which the model runs with draws."""
        return EvaluationContext(
            self.fixed_parameters, self.fixed_parameters.double, (self.model, self.guide)
        )

    def _program(self, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]) -> Any:
        """Return the model with its arguments, and the draws as NumPy arrays."""
        arrays = {name: value.detach().cpu().numpy() for name, value in values.items()}
        first = {name: value[0] for name, value in arrays.items()}
        arguments = (args, named) if args or named else (self.data, self.named)
        program = (self.model, *self.context.arguments(*arguments))
        return PyroModel(*program, first, self.context.device), arrays

    def log_joint(self, values: Mapping[str, Any]) -> np.ndarray:
        """Return the joint log density of latent draws and observations."""
        with self.context():
            program, arrays = self._program(values, (), {})
            return program.log_joint(arrays)

    def quantity_of_draws(
        self, of: Quantity, values: Mapping[str, Any], args: tuple, named: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """Return a site or function of sites for each draw, and what rebuilds it."""
        with self.context():
            program, arrays = self._program(values, args, named)
            parts, tree = program.quantity(of, arrays)
        return parts, lambda results: tree_unflatten(results, tree)

    def weights_of_data(self, datum: str | None) -> Perturbation:
        """Return the perturbation by weights of the data."""
        with self.fixed_parameters():
            return self._perturbed(data_weights(self._sites, self._sampled(), datum))

    def prior_parameters(self) -> Perturbation:
        """Return the perturbation by shifts of the priors' parameters."""
        with self.fixed_parameters():
            shapes = prior_parameters(self.model, self._sites, self.data, self.named)
        return self._perturbed(prior_shifts(shapes))

    def _perturbed(self, change: Change) -> PerturbedLoss:
        def loss(model: Callable, guide: Callable) -> Any:
            return self.elbo.differentiable_loss(model, guide, *self.data, **self.named)

        return PerturbedLoss(loss, (self.model, self.guide), self.fixed_parameters, change)

    def precision(self) -> Any:
        """Return the context in which Pyro has the parameters, in their precision."""
        return self.fixed_parameters()

    def array(self, values: np.ndarray) -> torch.Tensor:
        """Return numbers as a tensor with the dtype and device of the parameters."""
        return self.fixed_parameters.array(values)


def _is_random_delta(site: Any) -> bool:
    is_delta = isinstance(without_wrappers(site["fn"]), dist.Delta)
    return is_delta and isinstance(site["value"], MomentTensor)


def _location(site: Any, value: Any) -> tuple[torch.Tensor, torch.Tensor, Callable, Callable]:
    """Return mean and scale of coordinates, their map to the support, its log-slope.

    The log-slope is the log of the absolute determinant of the map's Jacobian, by element
    if the map works by element.
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
