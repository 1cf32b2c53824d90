"""A Pyro program at trained parameters, and its derivatives by them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch.distributions import biject_to
from torch.distributions.transforms import Transform

from moment_calculus import errors
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Propagation
from moment_inference import WITHOUT_NOISE, ParameterArray, Quantity, Tree, unknown_site
from moment_inference.objectives import described
from moment_inference.optimisation import DeterministicLoss
from moment_inference.response import Data
from pyro_moments._host import tree_flatten, tree_leaves, tree_map, tree_unflatten
from pyro_moments.draws.model import PyroModel
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.fitting.evaluation_context import (
    EvaluationContext,
    FixedParameters,
    unconstrained_values,
)
from pyro_moments.fitting.flat_loss import (
    CachedGraph,
    JacobianProducts,
    check_deterministic,
    flat_loss,
    locations_by_scale,
    slope_of,
    uncompiled,
)
from pyro_moments.fitting.parameters import (
    Parameters,
    as_array,
    double_precision,
    has_float64,
    parameters_to_float64,
    restore_parameters,
    to_float64,
)
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.fitting.storing import sampled_sites
from pyro_moments.likelihoods.structure import (
    random_parameters,
    random_tensors,
    with_random_tensors,
)
from pyro_moments.objectives.base import Program
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.prediction.predict import (
    Prediction,
    is_deterministic,
    moment_trace,
    prediction_at,
    sites_to_predict,
)
from pyro_moments.response.priors import ShiftPriors, prior_parameters
from pyro_moments.sites.host_transforms import transforms_with_moments
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.terms import mixes_elements, without_wrappers
from pyro_moments.sites.traces import is_factor


class LinearisedParts:
    """Tensors that depend on the parameters, as one vector."""

    def __init__(self, parts: Callable[[], Iterable[torch.Tensor]], fixed: FixedParameters) -> None:
        def vector() -> torch.Tensor:
            return torch.cat([fixed.as_tensor([]), *(part.reshape(-1) for part in parts())])

        self._fixed = fixed
        self._vector = CachedGraph(vector, fixed.leaves)
        self._product = CachedGraph(self._product_with_cotangent, fixed.leaves)
        self._rows, self._transposed_rows = JacobianProducts(), JacobianProducts()

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._fixed():
            return as_array(self._vector())

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        with self._fixed():
            return self._rows.times(rows, self._vector(), self._fixed.leaves)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        with self._fixed():
            cotangent, product = self._product()
            return self._transposed_rows.times(rows, product, [cotangent])

    def _product_with_cotangent(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a row, and its product with the Jacobian, which is linear in it."""
        vector = self._vector()
        cotangent = torch.zeros_like(vector, requires_grad=True)
        return cotangent, slope_of((vector * cotangent).sum(), self._fixed.leaves)


class PerturbedLoss:
    """The loss of a program that is changed by numbers, zero for the program itself."""

    def __init__(
        self,
        loss: Callable[[Mapping[Any, torch.Tensor]], torch.Tensor],
        shapes: Mapping[Any, tuple[int, ...]],
        fixed: FixedParameters,
    ) -> None:
        self._loss, self._shapes, self._fixed = loss, shapes, fixed
        self._slope = CachedGraph(self._slope_with_numbers, fixed.leaves)
        self._rows = JacobianProducts()

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """Return derivatives by the numbers of the slope along directions [k, n]."""
        with self._fixed():
            numbers, slope = self._slope()
            derivatives = self._rows.times(rows, slope, [*numbers.values()])
        ends = np.cumsum([part.numel() for part in numbers.values()])[:-1]
        parts = zip(self._shapes.items(), np.split(derivatives, ends, axis=1), strict=True)
        return {key: part.reshape(-1, *shape) for (key, shape), part in parts}

    def _slope_with_numbers(self) -> tuple[dict[Any, torch.Tensor], torch.Tensor]:
        numbers = {
            key: self._fixed.as_tensor(np.zeros(shape)).requires_grad_()
            for key, shape in self._shapes.items()
        }
        return numbers, slope_of(self._loss(numbers), self._fixed.leaves)


class _WeightData(Messenger):
    """Handler that weights observed sites, and latent sites of a datum."""

    def __init__(self, data: Data, weights: torch.Tensor) -> None:
        super().__init__()
        self.data, self.weights = data, weights

    def _pyro_sample(self, msg: Any) -> None:
        if is_deterministic(msg) or site_is_subsample(msg):
            return
        shape = self.data.weight_shape(msg["name"], msg)
        if shape is not None:
            msg["scale"] = msg["scale"] * self.weights.reshape(shape)


@dataclass(frozen=True)
class TrainedProgram:
    """Model, guide, arguments and objective at trained parameters."""

    program: Program
    elbo: Any  # that was minimised
    fixed: FixedParameters

    @classmethod
    def of(cls, program: Program, objective: Any = None, float64: bool = False) -> TrainedProgram:
        """Return a program at its trained parameters."""
        _check_runs_alone(program.guide)
        values = (program.parameters or {}).values()
        given = [torch.as_tensor(value, device="cpu").dtype for value in values]
        double = float64 or has_float64(program.guide) or torch.float64 in given
        objective = uncompiled(objective or DeterministicELBO())
        if not hasattr(objective, "differentiable_loss"):
            raise ValueError(
                f"{described(objective)} has no loss that can be differentiated twice: "
                f"{WITHOUT_NOISE}"
            )
        with random_state_restored(), double_precision() if double else contextlib.nullcontext():
            trained = cls._in_precision(program, objective, double)
        with trained.fixed():
            remedy = f"{WITHOUT_NOISE}; this one is of {described(objective)}"
            check_deterministic(partial(trained.program.loss, objective), remedy)
        return trained

    @classmethod
    def _in_precision(cls, program: Program, elbo: Any, double: bool) -> TrainedProgram:
        """Return the program at parameters; the precision of the parameters stays as it was."""
        if double:
            args, kwargs = to_float64((program.args, program.kwargs))
            program = program._replace(args=args, kwargs=kwargs)
        first = partial(program.loss, elbo)
        changed = parameters_to_float64(first) if double else []
        try:
            parameters = Parameters.from_run(first)
            copies = unconstrained_values(parameters, program.parameters)
        finally:
            restore_parameters(changed)
        if not copies:
            raise ValueError(
                "model and guide have no parameters: there is nothing that could respond"
            )
        return cls(program, elbo, FixedParameters(parameters, copies, program[:2]))

    @cached_property
    def objective(self) -> DeterministicLoss:
        """Return the loss of the flat parameters, at the held place."""
        with self.fixed():
            return flat_loss(self.elbo, self.program, self.fixed.parameters).within(self.fixed)

    def in_double(self) -> TrainedProgram:
        """Return the program in double precision."""
        with self.fixed(), double_precision():
            return self._in_precision(self.program._replace(parameters=None), self.elbo, True)

    @property
    def parameters(self) -> np.ndarray:
        """Return the parameters as one vector."""
        return self.fixed.vector

    @cached_property
    def leaves(self) -> list[ParameterArray]:
        """Return the parameters in order, each scale with the name of its location."""
        parameters = self.fixed.parameters
        scales = locations_by_scale(parameters)
        return [
            ParameterArray(name, leaf.numel(), scales.get(name))
            for name, leaf in parameters.leaves.items()
        ]

    @cached_property
    def sites(self) -> dict[str, Any]:
        """Return the ``sample`` sites of the model."""
        with self.fixed():
            return sampled_sites(*self.program.of_model)

    @contextlib.contextmanager
    def context(self) -> Any:
        """Return the context with the parameters, without gradients."""
        with self.fixed(), torch.no_grad():
            yield

    def array(self, values: Any) -> torch.Tensor:
        """Return numbers as a tensor with the dtype and device of the parameters."""
        return self.fixed.as_tensor(values)

    def linearised(self, function: Callable[[TrainedProgram], Tree]) -> LinearisedParts:
        """Return what a function makes of the program, as one vector, by the parameters."""
        return LinearisedParts(lambda: tree_leaves(function(self)), self.fixed)

    def structure(
        self, function: Callable[[TrainedProgram], Tree]
    ) -> tuple[list[tuple[int, ...]], Callable[[list[Any]], Tree]]:
        """Return the shapes of a function's tensors, and what arranges one item for each alike."""
        leaves, tree = tree_flatten(function(self))
        return [tuple(leaf.shape) for leaf in leaves], lambda parts: tree_unflatten(parts, tree)

    def perturbed(
        self,
        shapes: Mapping[Any, tuple[int, ...]],
        change: Callable[[TrainedProgram, Mapping], TrainedProgram],
    ) -> PerturbedLoss:
        """Return the perturbation by numbers of these shapes."""

        def loss(numbers: Mapping[Any, torch.Tensor]) -> torch.Tensor:
            return change(self, numbers).program.loss(self.elbo)

        return PerturbedLoss(loss, shapes, self.fixed)

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in the objective."""
        known = getattr(self.elbo, "propagation", None)
        return (known or propagation_of(None, "exact")).of_guide(poutine.unwrap(self.program.guide))

    def _guide_nodes(self) -> Mapping[str, Any]:
        """Return the sites of the guide, with moments for the latent sites."""
        _, guide, args, kwargs, *_ = self.program
        moments = MomentMessenger(self.propagation, guide=guide)
        with moments, transforms_with_moments(guide, args, dict(kwargs)):
            return poutine.trace(guide).get_trace(*args, **kwargs).nodes

    def guide_sites(self) -> dict[str, Any]:
        """Return the sites that the guide samples itself, not as functions of others."""
        sites = [site for site in self._guide_nodes().values() if site["type"] == "sample"]
        return {model_site(site): site for site in sites if not _is_random_delta(site)}

    def latent_values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of latent sites with their graphs, from the guide alone."""
        nodes = self._guide_nodes()
        for name in names:
            if name not in nodes:
                raise errors.not_in_guide(name)
        return {name: unwrap(nodes[name]["value"]) for name in names}

    def _with_arguments(self, args: tuple, kwargs: Mapping[str, Any]) -> Program:
        """Return the program with other arguments, in its precision; with none as it is."""
        if not args and not kwargs:
            return self.program
        args, kwargs = self.evaluation.cast_arguments(args, kwargs)
        return self.program._replace(args=args, kwargs=kwargs)

    def _moment_sites(
        self, args: tuple, kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the sites of the model, and which are latent."""
        return moment_trace(*self._with_arguments(args, kwargs)[:4], self.propagation)

    def expectation(self, of: Quantity, args: tuple, kwargs: Mapping[str, Any]) -> Tree:
        """Return the means of a site, or of a function of sites."""
        sites, latent = self._moment_sites(args, kwargs)
        values = {
            name: site["value"]
            for name, site in sites.items()
            if name in latent or is_deterministic(site)
        }
        if isinstance(of, str) and of not in values:
            if of not in sites:
                raise unknown_site(of, sites)
            return Prediction(of, sites[of]["fn"]).mean
        return tree_map(self._mean, values[of] if isinstance(of, str) else of(values))

    def _mean(self, value: Any) -> torch.Tensor:
        if isinstance(value, MomentTensor):
            return unwrap(value).gaussian().mean
        return value if isinstance(value, torch.Tensor) else self.array(value)

    def sites_to_predict(self, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sites that are neither latent nor factors, with moments."""
        return sites_to_predict(*self._moment_sites(args, kwargs))

    def random_parameters(self, site: Any) -> list[tuple[Any, int]]:
        """Return the random values behind a site, and how many axes are of one element."""
        if not is_deterministic(site):
            return random_parameters(site["fn"])
        return [(unwrap(t), min(t.dim(), 1)) for t in random_tensors(site["value"])]

    def prediction(self, name: str, site: Any, values: Sequence[Any]) -> Any:
        """Return the prediction of a site, with these for its random values."""
        part = "value" if is_deterministic(site) else "fn"
        pairs = zip(random_tensors(site[part]), values, strict=True)
        by_id = {id(tensor): MomentTensor(value) for tensor, value in pairs}
        return prediction_at(name, {**site, part: with_random_tensors(site[part], by_id)})

    def transform(self, site: Any) -> Any:
        """Return the bijection from the unconstrained space to a site's support."""
        return biject_to(site["fn"].support)

    def slope(self, function: Callable, points: torch.Tensor) -> torch.Tensor:
        """Return the derivative of an elementwise function."""
        return torch.func.jvp(function, (points,), (torch.ones_like(points),))[1]

    def mixes_elements(self, to_support: Any) -> bool:
        """Return whether a function of coordinates is a transform that mixes them."""
        return isinstance(to_support, Transform) and mixes_elements(to_support)

    def is_factor(self, site: Any) -> bool:
        """Return whether a site observes nothing."""
        return is_factor(site)

    def reweighted(self, data: Data, weights: torch.Tensor) -> TrainedProgram:
        """Return the program with weights of its data."""
        weighted = _WeightData(data, weights)
        model, guide, *_ = self.program
        guide = weighted(guide) if data.local_latents else guide
        return replace(self, program=self.program._replace(model=weighted(model), guide=guide))

    def prior_parameters(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Return the shapes of the priors' parameters that depend on no site."""
        with torch.enable_grad():
            model, args, kwargs = self.program.of_model
            return prior_parameters(model, self.sites, args, kwargs)

    def with_priors(self, numbers: Mapping[tuple[str, str], torch.Tensor]) -> TrainedProgram:
        """Return the program with numbers added to the parameters of its priors."""
        shifted = ShiftPriors(numbers)(self.program.model)
        return replace(self, program=self.program._replace(model=shifted))

    @cached_property
    def evaluation(self) -> EvaluationContext:
        """Return the context in which the model runs with draws."""
        return EvaluationContext(self.fixed, self.fixed.has_float64, self.program[:2])

    def with_draws(
        self, first: Mapping[str, np.ndarray], args: tuple, kwargs: Mapping[str, Any]
    ) -> PyroModel:
        """Return the model that runs with draws of its latent sites."""
        return PyroModel(self._with_arguments(args, kwargs), first, self.fixed.device)


def _check_runs_alone(guide: Callable) -> None:
    if isinstance(poutine.unwrap(guide), Messenger):
        raise ValueError(
            f"{type(guide).__name__} runs the model itself, so that linear response cannot ask for "
            "its sites alone: use DVIGuide or AutoNormal"
        )


def _is_random_delta(site: Any) -> bool:
    is_delta = isinstance(without_wrappers(site["fn"]), dist.Delta)
    return is_delta and isinstance(site["value"], MomentTensor)
