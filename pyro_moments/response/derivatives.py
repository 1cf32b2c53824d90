"""Expectations, predictions and perturbed losses, with derivatives by the parameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch.distributions import constraints

from moment_calculus.predictions.moments import Moments
from moment_calculus.values.deferred import Composite
from moment_inference.response.problem import Data, Quantities, Quantity, unknown_site
from moment_inference.response.random_parameters import RandomParameters
from pyro_moments._host import tree_flatten, tree_unflatten
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.fitting.flat_loss import CachedGraph, JacobianProducts, slope_of
from pyro_moments.fitting.parameters import as_array
from pyro_moments.likelihoods.structure import (
    constrained_tensors,
    random_tensors,
    with_random_tensors,
)
from pyro_moments.prediction.predict import (
    Prediction,
    is_deterministic,
    prediction_at,
    sites_to_predict,
)
from pyro_moments.response.evaluation_context import FixedParameters
from pyro_moments.sites.traces import is_factor


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(
        self, parts: Callable[[], Iterable[torch.Tensor]], fixed_parameters: FixedParameters
    ) -> None:
        def vector() -> torch.Tensor:
            return torch.cat(
                [fixed_parameters.as_tensor([]), *(part.reshape(-1) for part in parts())]
            )

        self._fixed_parameters = fixed_parameters
        self._vector = CachedGraph(vector, fixed_parameters.leaves)
        self._product = CachedGraph(self._product_with_cotangent, fixed_parameters.leaves)
        self._rows, self._transposed_rows = JacobianProducts(), JacobianProducts()

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._fixed_parameters():
            return as_array(self._vector())

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        with self._fixed_parameters():
            return self._rows.times(rows, self._vector(), self._fixed_parameters.leaves)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        with self._fixed_parameters():
            cotangent, product = self._product()
            return self._transposed_rows.times(rows, product, [cotangent])

    def _product_with_cotangent(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a row, and its product with the Jacobian, which is linear in it."""
        vector = self._vector()
        cotangent = torch.zeros_like(vector, requires_grad=True)
        return cotangent, slope_of((vector * cotangent).sum(), self._fixed_parameters.leaves)


RunModel = Callable[[], tuple[dict[str, Any], frozenset[str]]]  # sites, and which are latent


def expectations(
    of: Quantity, run_model: RunModel, fixed_parameters: FixedParameters
) -> Quantities:
    """Return the expectations of a site, or of a function of sites, at the parameters."""

    def expected() -> tuple[list[torch.Tensor], Any]:
        sites, latent = run_model()
        values = {
            name: site["value"]
            for name, site in sites.items()
            if name in latent or is_deterministic(site)
        }
        if isinstance(of, str) and of not in values:
            return tree_flatten(_predicted_mean(of, sites))
        leaves, tree = tree_flatten(values[of] if isinstance(of, str) else of(values))
        return [_mean(leaf, fixed_parameters) for leaf in leaves], tree

    with torch.no_grad():
        leaves, tree = expected()
    shapes = [tuple(leaf.shape) for leaf in leaves]
    functional = FlatFunctional(lambda: expected()[0], fixed_parameters)
    return Quantities(functional, shapes, lambda parts: tree_unflatten(parts, tree))


def _mean(value: Any, fixed_parameters: FixedParameters) -> torch.Tensor:
    if isinstance(value, MomentTensor):
        return unwrap(value).gaussian().mean
    return value if isinstance(value, torch.Tensor) else fixed_parameters.as_tensor(value)


def _predicted_mean(name: str, sites: dict[str, Any]) -> torch.Tensor:
    if name not in sites:
        raise unknown_site(name, sites)
    return Prediction(name, sites[name]["fn"]).mean


class CorrectedPredictions:
    """The Gaussians behind random parameters of observed sites."""

    def __init__(self, run_model: RunModel, fixed_parameters: FixedParameters) -> None:
        with torch.no_grad():
            self.sites = sites_to_predict(*run_model())
        self.parts = _random_parameters(self.sites)

        def means() -> list[torch.Tensor]:
            parts = _random_parameters(sites_to_predict(*run_model()))
            return [part.mean for part in parts.values()]

        shapes = [tuple(part.mean.shape) for part in self.parts.values()]
        self.sources = Quantities(
            FlatFunctional(means, fixed_parameters), shapes, lambda parts: parts
        )
        self.joint = [part.needs_covariance for part in self.parts.values()]

    @torch.no_grad()
    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """Return predictions, with given moments for sites with random parameters."""
        by_id: dict[int, MomentTensor] = {}
        for (name, part), part_moments in zip(self.parts.items(), moments, strict=True):
            tensors, values = (
                _tensors(self.sites[name]),
                part.with_gaussian_moments(part_moments, name),
            )
            pairs = zip(tensors, values, strict=True)
            by_id.update({id(tensor): MomentTensor(value) for tensor, value in pairs})
        return {
            name: prediction_at(
                name, {**site, _part(site): with_random_tensors(site[_part(site)], by_id)}
            )
            for name, site in self.sites.items()
        }


def _part(site: Any) -> str:
    """Return the key of a site's random part: ``value`` or ``fn``."""
    return "value" if is_deterministic(site) else "fn"


def _tensors(site: Any) -> list[MomentTensor]:
    return random_tensors(site[_part(site)])


def _random_parameters(sites: dict[str, Any]) -> dict[str, RandomParameters]:
    """Return the Gaussians of every site that has random parameters."""
    random = {name: tensors for name, site in sites.items() if (tensors := _tensors(site))}
    return {
        name: RandomParameters(
            [unwrap(part) for part in tensors], [_element_axes(sites[name], t) for t in tensors]
        )
        for name, tensors in random.items()
    }


def _element_axes(site: Any, tensor: MomentTensor) -> int:
    """Return how many trailing axes of a value belong to one element."""
    if isinstance(unwrap(tensor), Composite):
        return 1
    if is_deterministic(site):
        return min(tensor.dim(), 1)
    fn = site["fn"]
    by_id = {id(part): constraint for _, part, constraint in constrained_tensors(fn)}
    if id(tensor) not in by_id:
        return 0
    constraint = by_id[id(tensor)]
    # That of a Delta's value, which a reparameteriser leaves behind, depends on the site.
    return fn.event_dim if constraints.is_dependent(constraint) else constraint.event_dim


# Torch's distributions take one of each group, and derive the others from it on demand.
_ALTERNATIVES = (
    {"probs", "logits"},
    {"covariance_matrix", "precision_matrix", "scale_tril"},
)


def prior_parameters(
    model: Callable, sites: Mapping[str, Any], data: tuple, named: Mapping[str, Any]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the shapes of the priors' parameters in the model, by (site, parameter).

    Parameters that depend on other latent sites are left out.
    """
    latent = {name: site["value"] for name, site in sites.items() if not site["is_observed"]}
    values = {name: value.detach().clone().requires_grad_() for name, value in latent.items()}
    conditioned = poutine.condition(model, data={name: v.clone() for name, v in values.items()})
    with poutine.block():
        trace: Any = poutine.trace(conditioned).get_trace(*data, **named)
    return {
        (name, part): tuple(unbroadcast(tensor).shape)
        for name in latent
        for part, tensor in _shiftable(trace.nodes[name]["fn"]).items()
        if not _depends(tensor, [*values.values()])
    }


def _depends(tensor: torch.Tensor, values: list[torch.Tensor]) -> bool:
    if not tensor.requires_grad:
        return False
    slopes = torch.autograd.grad(tensor.sum(), values, allow_unused=True, retain_graph=True)
    return any(slope is not None for slope in slopes)


def shift_prior(fn: Any, numbers: Mapping[str, torch.Tensor]) -> Any:
    """Return a prior with numbers added to its parameters; masks and expansions stay."""
    if isinstance(fn, WRAPPERS):
        new = copy.copy(fn)
        new.base_dist = shift_prior(fn.base_dist, numbers)
        return new
    shifted_parameters = {
        name: part + numbers.get(name, 0) for name, part in _given_arguments(fn).items()
    }
    return type(fn)(**{**_other_arguments(fn), **shifted_parameters}, validate_args=False)


def unbroadcast(tensor: torch.Tensor) -> torch.Tensor:
    """Return a parameter before torch broadcast it by strides of zero."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    while tensor.dim() and tensor.shape[0] == 1 and tensor.stride(0) == 0:
        tensor = tensor[0]
    return tensor


def _shiftable(fn: Any) -> dict[str, torch.Tensor]:
    """Return the certain, continuous parameters with which a prior can be made anew."""
    while isinstance(fn, WRAPPERS):
        fn = fn.base_dist
    if isinstance(fn, dist.Delta) or not _can_be_made(fn):
        return {}
    return {
        name: part
        for name, part in _given_arguments(fn).items()
        if isinstance(part, torch.Tensor)
        and not isinstance(part, MomentTensor)
        and part.is_floating_point()
        and not _is_discrete(fn.arg_constraints[name])
    }


def _is_discrete(constraint: Any) -> bool:
    return not constraints.is_dependent(constraint) and constraint.is_discrete


def _given_arguments(base: Any) -> dict[str, Any]:
    """Return what a distribution was made from, by name."""
    attributes = [*vars(base)]
    names = [
        name
        for name in base.arg_constraints
        if name in attributes or isinstance(inspect.getattr_static(base, name, None), property)
    ]
    was_given = [_was_given(name, attributes) for name in names]
    return {name: getattr(base, name) for name, used in zip(names, was_given, strict=True) if used}


def _was_given(name: str, attributes: list[str]) -> bool:
    """Return whether a parameter was given, and not derived from another one later."""
    others = next((group for group in _ALTERNATIVES if name in group), {name}) & {*attributes}
    return name == min(others, key=attributes.index, default=name)


def _arguments(base: Any) -> dict[str, inspect.Parameter]:
    arguments = dict(inspect.signature(type(base).__init__).parameters)
    arguments.pop("self", None)
    arguments.pop("validate_args", None)
    return arguments


def _other_arguments(base: Any) -> dict[str, Any]:
    """Return the arguments of a distribution that are no parameters, such as a dimension."""
    names = _arguments(base).keys() - base.arg_constraints.keys()
    return {name: vars(base)[name] for name in names if name in vars(base)}


def _can_be_made(base: Any) -> bool:
    names = _given_arguments(base).keys() | _other_arguments(base).keys()
    return "validate_args" in inspect.signature(type(base).__init__).parameters and all(
        name in names or argument.default is not inspect.Parameter.empty
        for name, argument in _arguments(base).items()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    )


Shifts = Mapping[Any, torch.Tensor]
Programs = tuple[Callable, Callable]  # model and guide
Change = tuple[  # shapes of the numbers, and a function that changes model and guide by them
    Mapping[Any, tuple[int, ...]], Callable[[Shifts, Callable, Callable], Programs]
]


class PerturbedLoss:
    """The loss of a model that is changed by numbers, zero for the model itself."""

    def __init__(
        self,
        loss: Callable[[Callable, Callable], Any],
        programs: tuple[Callable, Callable],
        fixed_parameters: FixedParameters,
        change: Change,
    ) -> None:
        self._loss, self._programs, self._fixed_parameters = loss, programs, fixed_parameters
        self._shapes, self._change = change
        self._slope, self._rows = (
            CachedGraph(self._slope_with_numbers, fixed_parameters.leaves),
            JacobianProducts(),
        )

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """Return derivatives by the numbers of the slope along directions [k, n]."""
        with self._fixed_parameters():
            numbers, slope = self._slope()
            derivatives = self._rows.times(rows, slope, [*numbers.values()])
        ends = np.cumsum([0, *(part.numel() for part in numbers.values())])
        return {
            key: derivatives[:, start:end].reshape(-1, *shape)
            for (key, shape), start, end in zip(
                self._shapes.items(), ends[:-1], ends[1:], strict=True
            )
        }

    def _slope_with_numbers(self) -> tuple[dict[Any, torch.Tensor], torch.Tensor]:
        numbers = {
            key: self._fixed_parameters.as_tensor(np.zeros(shape)).requires_grad_()
            for key, shape in self._shapes.items()
        }
        loss = self._loss(*self._change(numbers, *self._programs))
        return numbers, slope_of(loss, self._fixed_parameters.leaves)


def data_weights(sites: Mapping[str, dict], guide: Mapping[str, Any], datum: str | None) -> Change:
    """Return the change by weights of the data, as differences from one."""
    # A datum is an element of a plate; without a name, of all plates around every
    # observation.
    data = Data.from_sites(sites, is_factor, datum)
    data.check_guide(guide)

    def changed(numbers: Shifts, model: Callable, guide: Callable) -> Programs:
        weighted = _WeightData(data, 1 + numbers[None])
        return weighted(model), weighted(guide) if data.local_latents else guide

    return {None: data.shape}, changed


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


def prior_shifts(shapes: Mapping[tuple[str, str], tuple[int, ...]]) -> Change:
    """Return the change by shifts of the priors' parameters, by (site, parameter)."""
    return shapes, lambda numbers, model, guide: (_ShiftPriors(numbers)(model), guide)


class _ShiftPriors(Messenger):
    """Handler that adds numbers to the parameters of the priors."""

    def __init__(self, numbers: Shifts) -> None:
        super().__init__()
        self.numbers = numbers

    def _pyro_sample(self, msg: Any) -> None:
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if numbers:
            msg["fn"] = shift_prior(msg["fn"], numbers)
