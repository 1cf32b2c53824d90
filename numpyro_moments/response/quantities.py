"""Expectations of sites, or of functions of sites, as functions of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers

from moment_calculus.response.problem import Quantities, Quantity
from moment_calculus.response.wording import unknown_site
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.response.functional import FlatFunctional
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import Traces

QUANTITY = "_quantity"  # the deterministic site that holds a function of the others

RunModel = Callable[[Callable, jax.Array], Traces]  # traces of a model at parameters


def expectations(
    of: Quantity, model: Callable, run_model: RunModel, flat: jax.Array, precision: Precision
) -> Quantities:
    """Return the expectations of a site, or of a function of sites, at the parameters."""

    def expected(flat: jax.Array) -> Any:
        if callable(of):
            return _means(run_model(_Telling(model, of), flat).model[QUANTITY]["value"])
        return _mean_of_site(of, run_model(model, flat).model)

    shapes = jax.eval_shape(expected, flat)
    leaves, tree = jax.tree.flatten(shapes)

    def at(flat: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(expected(flat))])

    functional = FlatFunctional(at, flat, precision)
    return Quantities(
        functional, [leaf.shape for leaf in leaves], lambda parts: jax.tree.unflatten(tree, parts)
    )


def _means(values: Any) -> Any:
    """Return the means of live values in dictionaries and tuples."""
    mean = lambda value: value.gaussian().mean if is_random(value) else jnp.asarray(value)  # noqa: E731
    return jax.tree.map(mean, values, is_leaf=is_random)


def _mean_of_site(name: str, sites: dict[str, dict]) -> jax.Array:
    if name not in sites:
        raise unknown_site(name, sites)
    site = sites[name]
    if site["type"] == "sample" and site["is_observed"]:
        return Prediction(name, site["fn"]).mean
    return _means(site["value"])


class _Telling:
    """A model with one more deterministic site: a function of latent and deterministic sites."""

    def __init__(self, model: Callable, function: Callable) -> None:
        self.model, self.function = model, function

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model, and record the function of its sites."""
        with handlers.trace() as sites:
            result = self.model(*args, **named)
        values = {
            name: site["value"]
            for name, site in sites.items()
            if site["type"] == "deterministic"
            or (site["type"] == "sample" and not site["is_observed"])
        }
        numpyro.deterministic(QUANTITY, self.function(values))
        return result
