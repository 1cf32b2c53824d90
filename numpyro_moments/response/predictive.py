"""Predictions whose likelihoods have parameters with corrected variances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.hosts.moments import Moments
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.response.problem import Quantities
from moment_calculus.response.sources import source_of, with_source
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods.derived import stripped
from numpyro_moments.likelihoods.structure import constrained_values, random_leaves
from numpyro_moments.prediction.predict import predicted_at, predicted_in
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.response.functional import FlatFunctional
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import Traces


class Predictive:
    """The random parameters of what a model observes, one after the other.

    Args:
        traces: of guide and model at parameters.
        flat: the trained parameters.
        precision: in which all is computed.
    """

    def __init__(
        self, traces: Callable[[jax.Array], Traces], flat: jax.Array, precision: Precision
    ) -> None:
        self.sites = predicted_in(traces(flat))
        self.values = list(_values(self.sites))
        functional = FlatFunctional(
            lambda flat: _means(_values(predicted_in(traces(flat)))), flat, precision
        )
        shapes = [value.shape for _, value in self.values]
        self.sources = Quantities(functional, shapes, lambda parts: parts)
        self.joint = [_is_joint(self.sites[name], value) for name, value in self.values]

    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """The predictions, with moments of their sources.

        Args:
            moments: one for each random parameter.
        """
        given = iter(enumerate(zip(self.values, moments, strict=True)))

        def replaced(leaf: Any) -> Any:
            if not is_random(leaf):
                return leaf
            number, ((name, value), found) = next(given)
            return with_source(value, found, f"{name}, source {number}")

        return {
            name: predicted_at(name, {**site, **_replaced(site, replaced)})
            for name, site in self.sites.items()
        }


def _part(site: dict) -> str:
    """What of a site is random and not observed."""
    return "fn" if site["type"] == "sample" else "value"


def _tree(site: dict) -> Any:
    return stripped(site["fn"]) if site["type"] == "sample" else site["value"]


def _replaced(site: dict, replaced: Callable) -> dict[str, Any]:
    return {_part(site): jax.tree.map(replaced, _tree(site), is_leaf=is_random)}


def _values(sites: dict[str, dict]) -> Iterator[tuple[str, Any]]:
    for name, site in sites.items():
        for value in random_leaves(_tree(site)):
            yield name, value


def _means(values: Iterator[tuple[str, Any]]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(source_of(v).mean.ravel() for _, v in values)])


def _is_joint(site: dict, value: Any) -> bool:
    """Whether the covariances over the trailing axis of a value count."""
    if isinstance(value, Composite):
        return True
    if site["type"] != "sample":
        return len(value.shape) > 0
    known = {id(part): constraint for _, part, constraint in constrained_values(site["fn"])}
    return id(value) in known and known[id(value)].event_dim > 0
