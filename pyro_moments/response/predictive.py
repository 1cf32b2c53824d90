"""Predictions whose likelihoods have parameters with corrected variances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from moment_calculus.hosts.moments import Moments
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.response.problem import Quantities
from moment_calculus.response.sources import source_of, with_source
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import constrained_tensors, exchanged, random_tensors
from pyro_moments.prediction.predict import is_deterministic, predicted_at, predicted_in
from pyro_moments.prediction.prediction import Prediction
from pyro_moments.response.functional import FlatFunctional
from pyro_moments.response.held import Held
from pyro_moments.response.quantities import Told


class Predictive:
    """The random parameters of what a model observes, one after the other.

    Args:
        told: what the model does at the parameters.
        held: the parameters.
    """

    def __init__(self, told: Told, held: Held) -> None:
        with torch.no_grad():
            self.sites = predicted_in(*told())
        self.tensors = list(_tensors(self.sites))

        def at() -> torch.Tensor:
            found = (unwrap(tensor) for _, tensor in _tensors(predicted_in(*told())))
            means = (source_of(value).mean.reshape(-1) for value in found)
            return torch.cat([held.array([]), *means])

        shapes = [tuple(source_of(unwrap(tensor)).shape) for _, tensor in self.tensors]
        self.sources = Quantities(FlatFunctional(at, held), shapes, lambda parts: parts)
        self.joint = [_is_joint(self.sites[name], tensor) for name, tensor in self.tensors]

    @torch.no_grad()
    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """The predictions, with moments of their sources.

        Args:
            moments: one for each random parameter.
        """
        made = {
            id(tensor): MomentTensor(with_source(unwrap(tensor), found, f"{name}, parameter {at}"))
            for at, ((name, tensor), found) in enumerate(zip(self.tensors, moments, strict=True))
        }
        return {
            name: predicted_at(name, {**site, _part(site): exchanged(site[_part(site)], made)})
            for name, site in self.sites.items()
        }


def _part(site: Any) -> str:
    """What of a site is random and not observed."""
    return "value" if is_deterministic(site) else "fn"


def _tensors(sites: dict[str, Any]) -> Iterator[tuple[str, MomentTensor]]:
    for name, site in sites.items():
        for tensor in random_tensors(site[_part(site)]):
            yield name, tensor


def _is_joint(site: Any, tensor: MomentTensor) -> bool:
    """Whether the covariances over the trailing axis of a value count."""
    if isinstance(unwrap(tensor), Composite):
        return True
    if is_deterministic(site):
        return tensor.dim() > 0
    fn = site["fn"]
    known = {id(part): constraint for _, part, constraint in constrained_tensors(fn)}
    return id(tensor) in known and known[id(tensor)].event_dim > 0
