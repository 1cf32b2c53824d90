"""Predict sites whose likelihoods have parameters with corrected moments."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.hosts.moments import Moments
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.response.problem import Quantities
from moment_calculus.response.sources import Sources
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import constrained_tensors, exchanged, random_tensors
from pyro_moments.prediction.predict import is_deterministic, predicted_at, predicted_in
from pyro_moments.prediction.prediction import Prediction
from pyro_moments.response.functional import FlatFunctional
from pyro_moments.response.held import Held
from pyro_moments.response.quantities import Told


class Predictive:
    """The Gaussians behind the random parameters of what a model observes, site by site."""

    def __init__(self, told: Told, held: Held) -> None:
        with torch.no_grad():
            self.sites = predicted_in(*told())
        self.parts = _sources(self.sites)

        def at() -> torch.Tensor:
            parts = _sources(predicted_in(*told())).values()
            return torch.cat([held.array([]), *(part.mean.reshape(-1) for part in parts)])

        shapes = [tuple(part.mean.shape) for part in self.parts.values()]
        self.sources = Quantities(FlatFunctional(at, held), shapes, lambda parts: parts)
        self.joint = [part.joint for part in self.parts.values()]

    @torch.no_grad()
    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """Return the predictions, with the given moments for sites with random parameters."""
        made: dict[int, MomentTensor] = {}
        for (name, part), found in zip(self.parts.items(), moments, strict=True):
            tensors, values = _tensors(self.sites[name]), part.replaced(found, name)
            pairs = zip(tensors, values, strict=True)
            made.update({id(tensor): MomentTensor(value) for tensor, value in pairs})
        return {
            name: predicted_at(name, {**site, _part(site): exchanged(site[_part(site)], made)})
            for name, site in self.sites.items()
        }


def _part(site: Any) -> str:
    """Return the key of a site's random part: ``value`` if it is deterministic, else ``fn``."""
    return "value" if is_deterministic(site) else "fn"


def _tensors(site: Any) -> list[MomentTensor]:
    return random_tensors(site[_part(site)])


def _sources(sites: dict[str, Any]) -> dict[str, Sources]:
    """Return the Gaussians of every site that has random parameters."""
    random = {name: tensors for name, site in sites.items() if (tensors := _tensors(site))}
    return {
        name: Sources([unwrap(part) for part in tensors], [_own(sites[name], t) for t in tensors])
        for name, tensors in random.items()
    }


def _own(site: Any, tensor: MomentTensor) -> int:
    """Return how many trailing axes of a value belong to one element."""
    if isinstance(unwrap(tensor), Composite):
        return 1
    if is_deterministic(site):
        return min(tensor.dim(), 1)
    fn = site["fn"]
    known = {id(part): constraint for _, part, constraint in constrained_tensors(fn)}
    return known[id(tensor)].event_dim if id(tensor) in known else 0
