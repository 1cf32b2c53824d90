"""Expectations of sites, or of functions of sites, as functions of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from moment_calculus.response.problem import Quantities, Quantity
from moment_calculus.response.wording import unknown_site
from pyro_moments._host import tree_flatten, tree_unflatten
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.prediction.predict import is_deterministic
from pyro_moments.prediction.prediction import Prediction
from pyro_moments.response.fixed_parameters import FixedParameters
from pyro_moments.response.functional import FlatFunctional

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
