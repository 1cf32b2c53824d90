"""Expectations and predictions of sites as functions of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from moment_calculus.predictions.moments import Moments
from moment_calculus.response.errors import unknown_site
from moment_calculus.response.problem import Quantities, Quantity
from moment_calculus.response.random_parameters import RandomParameters
from moment_calculus.values.deferred import Composite
from pyro_moments._host import tree_flatten, tree_unflatten
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.fitting.flat_loss import CachedGraph, JacobianProducts, slope_of
from pyro_moments.fitting.parameters import as_array
from pyro_moments.likelihoods.structure import (
    constrained_tensors,
    random_tensors,
    with_random_tensors,
)
from pyro_moments.prediction.predict import is_deterministic, prediction_at, sites_to_predict
from pyro_moments.prediction.prediction import Prediction
from pyro_moments.response.evaluation_context import FixedParameters


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, at: Callable[[], torch.Tensor], fixed_parameters: FixedParameters) -> None:
        self._fixed_parameters = fixed_parameters
        self._vector = CachedGraph(at, fixed_parameters.leaves)
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
        """Return a row and the row times the Jacobian, whose derivative by it is the transpose."""
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
        if isinstance(of, str):
            return [_mean_of_site(of, sites, latent)], None
        leaves, tree = tree_flatten(of(_values(sites, latent)))
        return [_mean(leaf, fixed_parameters) for leaf in leaves], tree

    def at() -> torch.Tensor:
        return torch.cat(
            [fixed_parameters.array([]), *(leaf.reshape(-1) for leaf in expected()[0])]
        )

    with torch.no_grad():
        leaves, tree = expected()
    shapes = [tuple(leaf.shape) for leaf in leaves]
    return Quantities(
        FlatFunctional(at, fixed_parameters), shapes, lambda parts: to_tree(parts, tree)
    )


def to_tree(parts: list[Any], tree: Any) -> Any:
    """Return parts in the form of what the user's function returns; a tree of None is one part."""
    return parts[0] if tree is None else tree_unflatten(parts, tree)


def _values(sites: dict[str, Any], latent: frozenset[str]) -> dict[str, Any]:
    """Return the values of latent and deterministic sites by name."""
    return {
        name: site["value"]
        for name, site in sites.items()
        if name in latent or is_deterministic(site)
    }


def _mean(value: Any, fixed_parameters: FixedParameters) -> torch.Tensor:
    if isinstance(value, MomentTensor):
        return unwrap(value).gaussian().mean
    return value if isinstance(value, torch.Tensor) else fixed_parameters.array(value)


def _mean_of_site(name: str, sites: dict[str, Any], latent: frozenset[str]) -> torch.Tensor:
    if name not in sites:
        raise unknown_site(name, sites)
    site = sites[name]
    if name in latent or is_deterministic(site):
        value = site["value"]
        return unwrap(value).gaussian().mean if isinstance(value, MomentTensor) else value
    return Prediction(name, site["fn"]).mean


class CorrectedPredictions:
    """The Gaussians behind the random parameters of what a model observes, site by site."""

    def __init__(self, run_model: RunModel, fixed_parameters: FixedParameters) -> None:
        with torch.no_grad():
            self.sites = sites_to_predict(*run_model())
        self.parts = _random_parameters(self.sites)

        def at() -> torch.Tensor:
            parts = _random_parameters(sites_to_predict(*run_model())).values()
            return torch.cat(
                [fixed_parameters.array([]), *(part.mean.reshape(-1) for part in parts)]
            )

        shapes = [tuple(part.mean.shape) for part in self.parts.values()]
        self.sources = Quantities(FlatFunctional(at, fixed_parameters), shapes, lambda parts: parts)
        self.joint = [part.joint for part in self.parts.values()]

    @torch.no_grad()
    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """Return the predictions, with the given moments for sites with random parameters."""
        by_id: dict[int, MomentTensor] = {}
        for (name, part), part_moments in zip(self.parts.items(), moments, strict=True):
            tensors, values = _tensors(self.sites[name]), part.with_moments(part_moments, name)
            pairs = zip(tensors, values, strict=True)
            by_id.update({id(tensor): MomentTensor(value) for tensor, value in pairs})
        return {
            name: prediction_at(
                name, {**site, _part(site): with_random_tensors(site[_part(site)], by_id)}
            )
            for name, site in self.sites.items()
        }


def _part(site: Any) -> str:
    """Return the key of a site's random part: ``value`` if it is deterministic, else ``fn``."""
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
    constraints = {id(part): constraint for _, part, constraint in constrained_tensors(fn)}
    return constraints[id(tensor)].event_dim if id(tensor) in constraints else 0
