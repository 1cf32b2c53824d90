"""Predictions whose likelihoods have parameters with corrected variances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.hosts.moments import Moments
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.response.problem import Quantities
from moment_calculus.response.sources import Sources
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods.derived import stripped
from numpyro_moments.likelihoods.structure import constrained_values, random_leaves
from numpyro_moments.prediction.predict import predicted_at, predicted_in
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.response.functional import FlatFunctional
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import Traces


class Predictive:
    """The Gaussians behind the random parameters of what a model observes, site by site.

    Args:
        traces: of guide and model at parameters.
        flat: the trained parameters.
        precision: in which all is computed.
    """

    def __init__(
        self, traces: Callable[[jax.Array], Traces], flat: jax.Array, precision: Precision
    ) -> None:
        self.sites = predicted_in(traces(flat))
        self.parts = _sources(self.sites)
        functional = FlatFunctional(
            lambda flat: _means(_sources(predicted_in(traces(flat)))), flat, precision
        )
        shapes = [part.mean.shape for part in self.parts.values()]
        self.sources = Quantities(functional, shapes, lambda parts: parts)
        self.joint = [part.joint for part in self.parts.values()]

    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """The predictions, with moments of their sources.

        Args:
            moments: of the sources of each site that has some.
        """
        pairs = zip(self.parts.items(), moments, strict=True)
        made = {name: part.replaced(found, name) for (name, part), found in pairs}
        return {
            name: predicted_at(name, {**site, _part(site): _exchanged(site, made.get(name, []))})
            for name, site in self.sites.items()
        }


def _part(site: dict) -> str:
    """What of a site is random and not observed."""
    return "fn" if site["type"] == "sample" else "value"


def _tree(site: dict) -> Any:
    return stripped(site["fn"]) if site["type"] == "sample" else site["value"]


def _exchanged(site: dict, values: list[Any]) -> Any:
    """What of a site is random, with other values for the random ones."""
    given = iter(values)
    exchange = lambda leaf: next(given) if is_random(leaf) else leaf  # noqa: E731
    return jax.tree.map(exchange, _tree(site), is_leaf=is_random)


def _sources(sites: dict[str, dict]) -> dict[str, Sources]:
    """The sources of every site that has some."""
    random = {
        name: leaves for name, site in sites.items() if (leaves := random_leaves(_tree(site)))
    }
    return {
        name: Sources(leaves, [_own(sites[name], leaf) for leaf in leaves])
        for name, leaves in random.items()
    }


def _means(sources: dict[str, Sources]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(part.mean.ravel() for part in sources.values())])


def _own(site: dict, value: Any) -> int:
    """How many trailing axes of a value belong to one element."""
    if isinstance(value, Composite):
        return 1
    if site["type"] != "sample":
        return min(len(value.shape), 1)
    known = {id(part): constraint for _, part, constraint in constrained_values(site["fn"])}
    return known[id(value)].event_dim if id(value) in known else 0
