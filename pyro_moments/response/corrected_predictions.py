"""Predict sites whose likelihoods have parameters with corrected moments."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.predictions.moments import Moments
from moment_calculus.response.problem import Quantities
from moment_calculus.response.random_parameters import RandomParameters
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import (
    constrained_tensors,
    random_tensors,
    with_random_tensors,
)
from pyro_moments.prediction.predict import is_deterministic, prediction_at, sites_to_predict
from pyro_moments.prediction.prediction import Prediction
from pyro_moments.response.fixed_parameters import FixedParameters
from pyro_moments.response.functional import FlatFunctional
from pyro_moments.response.quantities import RunModel


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
