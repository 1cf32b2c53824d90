"""Expectations and predictions of sites as functions of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

from moment_calculus.predictions.moments import Moments
from moment_calculus.response.errors import unknown_site
from moment_calculus.response.problem import Quantities, Quantity
from moment_calculus.response.random_parameters import RandomParameters
from moment_calculus.values.deferred import Composite
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.likelihoods.structure import constrained_values, random_leaves, stripped
from numpyro_moments.prediction.predict import prediction_at, sites_to_predict
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import Traces


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, at: Callable[[jax.Array], jax.Array], place: Any, precision: Precision):
        self._at, self._place, self._precision = at, place, precision

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._precision():
            return np.asarray(jax.jit(self._at)(self._place), np.float64)

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        return self._run(self._pull, rows)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        return self._run(self._push, rows)

    def _run(self, compiled: Callable, rows: np.ndarray) -> np.ndarray:
        with self._precision():
            given = jnp.asarray(rows, self._place.dtype)
            return np.asarray(compiled(self._place, given), np.float64)

    @cached_property
    def _pull(self) -> Callable:
        def vjp(place: jax.Array, rows: jax.Array) -> jax.Array:
            return jax.vmap(lambda row: jax.vjp(self._at, place)[1](row)[0])(rows)

        return jax.jit(vjp)

    @cached_property
    def _push(self) -> Callable:
        def jvp(place: jax.Array, rows: jax.Array) -> jax.Array:
            return jax.vmap(lambda row: jax.jvp(self._at, (place,), (row,))[1])(rows)

        return jax.jit(jvp)


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


class CorrectedPredictions:
    """The Gaussians behind the random parameters of what a model observes, site by site."""

    def __init__(
        self, traces: Callable[[jax.Array], Traces], flat: jax.Array, precision: Precision
    ) -> None:
        self.sites = sites_to_predict(traces(flat))
        self.parts = _random_parameters(self.sites)
        functional = FlatFunctional(
            lambda flat: _flat_means(_random_parameters(sites_to_predict(traces(flat)))),
            flat,
            precision,
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


def _flat_means(parts: dict[str, RandomParameters]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(part.mean.ravel() for part in parts.values())])


def _element_axes(site: dict, value: Any) -> int:
    """Return how many trailing axes of a value belong to one element."""
    if isinstance(value, Composite):
        return 1
    if site["type"] != "sample":
        return min(len(value.shape), 1)
    known = {id(part): constraint for _, part, constraint in constrained_values(site["fn"])}
    return known[id(value)].event_dim if id(value) in known else 0
