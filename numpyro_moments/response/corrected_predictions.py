"""Predict sites whose likelihoods have parameters with corrected moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.hosts.moments import Moments
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.response.problem import Quantities
from moment_calculus.response.random_parameters import RandomParameters
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods.structure import constrained_values, random_leaves, stripped
from numpyro_moments.prediction.predict import prediction_at, sites_to_predict
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.response.functional import FlatFunctional
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import Traces


class CorrectedPredictions:
    """The Gaussians behind the random parameters of what a model observes, site by site."""

    def __init__(
        self, traces: Callable[[jax.Array], Traces], flat: jax.Array, precision: Precision
    ) -> None:
        self.sites = sites_to_predict(traces(flat))
        self.parts = _random_parameters(self.sites)
        functional = FlatFunctional(
            lambda flat: _means(_random_parameters(sites_to_predict(traces(flat)))), flat, precision
        )
        shapes = [part.mean.shape for part in self.parts.values()]
        self.sources = Quantities(functional, shapes, lambda parts: parts)
        self.joint = [part.joint for part in self.parts.values()]

    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """Return the predictions, with the given moments for sites with random parameters."""
        pairs = zip(self.parts.items(), moments, strict=True)
        made = {name: part.with_moments(found, name) for (name, part), found in pairs}
        return {
            name: prediction_at(name, {**site, _part(site): _exchanged(site, made.get(name, []))})
            for name, site in self.sites.items()
        }


def _part(site: dict) -> str:
    """Return the key of a site's random part: ``value`` if it is deterministic, else ``fn``."""
    return "fn" if site["type"] == "sample" else "value"


def _tree(site: dict) -> Any:
    return stripped(site["fn"]) if site["type"] == "sample" else site["value"]


def _exchanged(site: dict, values: list[Any]) -> Any:
    """Return a site's random part with other values in place of the random ones."""
    given = iter(values)
    exchange = lambda leaf: next(given) if is_random(leaf) else leaf  # noqa: E731
    return jax.tree.map(exchange, _tree(site), is_leaf=is_random)


def _random_parameters(sites: dict[str, dict]) -> dict[str, RandomParameters]:
    """Return the Gaussians of every site that has random parameters."""
    random = {
        name: leaves for name, site in sites.items() if (leaves := random_leaves(_tree(site)))
    }
    return {
        name: RandomParameters(leaves, [_element_axes(sites[name], leaf) for leaf in leaves])
        for name, leaves in random.items()
    }


def _means(sources: dict[str, RandomParameters]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(part.mean.ravel() for part in sources.values())])


def _element_axes(site: dict, value: Any) -> int:
    """Return how many trailing axes of a value belong to one element."""
    if isinstance(value, Composite):
        return 1
    if site["type"] != "sample":
        return min(len(value.shape), 1)
    known = {id(part): constraint for _, part, constraint in constrained_values(site["fn"])}
    return known[id(value)].event_dim if id(value) in known else 0
