"""Expectations, predictions and perturbed losses, with derivatives by the parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from moment_calculus.predictions.moments import Moments
from moment_calculus.values.deferred import Composite
from moment_guides.numpyro.latent_sites import is_latent
from moment_inference.optimisation.weighting import scale_by
from moment_inference.response.problem import Data, Quantities, Quantity, unknown_site
from moment_inference.response.random_parameters import RandomParameters
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.fitting.flat_loss import FlatLoss
from numpyro_moments.likelihoods.structure import constrained_values, random_leaves, stripped
from numpyro_moments.prediction.predict import Prediction, prediction_at, sites_to_predict
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.terms import without_wrappers
from numpyro_moments.sites.traces import Traces, is_factor


class FlatFunctional:
    """A flat vector [d] that depends on the parameters [n]."""

    def __init__(self, tree: Callable[[jax.Array], Any], place: Any, precision: Precision):
        self._tree, self._place, self._precision = tree, place, precision

    def _at(self, place: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(self._tree(place))
        return jnp.concatenate([jnp.zeros(0), *map(jnp.ravel, leaves)])

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

    functional = FlatFunctional(expected, flat, precision)
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
    """A model with one more deterministic site: a function of its sites."""

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
    """The Gaussians behind random parameters of observed sites."""

    def __init__(
        self, traces: Callable[[jax.Array], Traces], flat: jax.Array, precision: Precision
    ) -> None:
        self.sites = sites_to_predict(traces(flat))
        self.parts = _random_parameters(self.sites)

        def means(flat: jax.Array) -> list[jax.Array]:
            parts = _random_parameters(sites_to_predict(traces(flat)))
            return [part.mean for part in parts.values()]

        functional = FlatFunctional(means, flat, precision)
        shapes = [part.mean.shape for part in self.parts.values()]
        self.sources = Quantities(functional, shapes, lambda parts: parts)
        self.joint = [part.needs_covariance for part in self.parts.values()]

    def corrected(self, moments: list[Moments]) -> dict[str, Prediction | Moments]:
        """Return predictions, with given moments for sites with random parameters."""
        pairs = zip(self.parts.items(), moments, strict=True)
        made = {name: part.with_gaussian_moments(found, name) for (name, part), found in pairs}
        return {
            name: prediction_at(name, {**site, _part(site): _exchanged(site, made.get(name, []))})
            for name, site in self.sites.items()
        }


def _part(site: dict) -> str:
    """Return the key of a site's random part: ``value`` or ``fn``."""
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


def _element_axes(site: dict, value: Any) -> int:
    """Return how many trailing axes of a value belong to one element."""
    if isinstance(value, Composite):
        return 1
    if site["type"] != "sample":
        return min(len(value.shape), 1)
    known = {id(part): constraint for _, part, constraint in constrained_values(site["fn"])}
    return known[id(value)].event_dim if id(value) in known else 0


Changed = tuple[Callable, Callable]  # model and guide
# Zeros for the numbers, and a function that changes model and guide by them.
Change = tuple[Any, Callable[[Callable, Callable, Any], Changed]]


class PerturbedLoss:
    """The loss of a model that is changed by numbers, zero for the model itself."""

    def __init__(
        self, loss: FlatLoss, flat: Any, unravel: Callable, change: Change, precision: Precision
    ) -> None:
        self._loss, self._flat, self._unravel = loss, flat, unravel
        self._zeros, self._changed = change
        self._precision = precision

    def mixed_derivative(self, rows: np.ndarray) -> Any:
        """Return derivatives by the numbers of the slope along directions [k, n]."""
        with self._precision():
            found = self._along(self._flat, jnp.asarray(rows, self._flat.dtype))
            return {
                key: np.asarray(part, np.float64)
                for key, part in zip(self._zeros, found, strict=True)
            }

    @cached_property
    def _along(self) -> Callable:
        def loss(flat: jax.Array, numbers: Any) -> jax.Array:
            svi = copy.copy(self._loss.svi)
            svi.model, svi.guide = self._changed(svi.model, svi.guide, numbers)
            changed = FlatLoss(svi, self._loss.key, self._loss.args, self._loss.kwargs)
            return changed.loss(self._unravel(flat), self._loss.key)

        def mixed_derivative(flat: jax.Array, row: jax.Array) -> Any:
            def slope(numbers: list[jax.Array]) -> jax.Array:
                by_name = dict(zip(self._zeros, numbers, strict=True))
                return jax.jvp(lambda f: loss(f, by_name), (flat,), (row,))[1]

            return jax.grad(slope)([*self._zeros.values()])

        return jax.jit(jax.vmap(mixed_derivative, in_axes=(None, 0)))


def data_weights(sites: Mapping[str, dict], guide: Mapping[str, dict], datum: str | None) -> Change:
    """Return the change by weights of the data, as differences from one."""
    # A datum is an element of a plate; without a name, of all plates around every
    # observation.
    data = Data.from_sites(sites, is_factor, datum)
    data.check_guide(guide)

    def changed(model: Callable, guide: Callable, numbers: Any) -> Changed:
        weights = 1 + numbers[None]
        weighted = _WeightData(model, data, weights)
        return weighted, _WeightData(guide, data, weights) if data.local_latents else guide

    return {None: jnp.zeros(data.shape)}, changed


class _WeightData(Messenger):
    """Handler that weights observed sites, and latent sites of a datum."""

    def __init__(self, fn: Callable, data: Data, weights: jax.Array) -> None:
        super().__init__(fn)
        self.data, self.weights = data, weights

    def process_message(self, msg: Any) -> None:
        """Scale a site."""
        if msg["type"] != "sample":
            return
        shape = self.data.weight_shape(msg["name"], msg)
        if shape is not None:
            scale_by(msg, self.weights.reshape(shape))


def prior_shifts(
    model: Callable, sites: Mapping[str, dict], data: tuple, named: Mapping[str, Any]
) -> Change:
    """Return the change by shifts of the priors' parameters, by (site, parameter)."""
    latent = {name: site["value"] for name, site in sites.items() if is_latent(site)}

    def parameters(**values: Any) -> dict[str, dict[str, Any]]:
        substituted = handlers.substitute(handlers.seed(model, 0), data=values)
        run = handlers.trace(substituted).get_trace(*data, **named)
        return {name: _parameters(run[name]["fn"]) for name in latent}

    origins = eval_provenance(parameters, **latent)
    shapes = jax.eval_shape(parameters, **latent)
    zeros = {
        (name, part): jnp.zeros(_written(shape.shape), shape.dtype)
        for name in latent
        for part, shape in shapes[name].items()
        if not origins[name][part]
    }
    return zeros, lambda model, guide, numbers: (_ShiftPriors(model, numbers), guide)


def _written(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a parameter's shape before NumPyro added leading axes to it for broadcasting."""
    return shape[next((axis for axis, size in enumerate(shape) if size != 1), len(shape)) :]


class _ShiftPriors(Messenger):
    def __init__(self, fn: Callable, numbers: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(fn)
        self.numbers = numbers

    def process_message(self, msg: Any) -> None:
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if msg["type"] == "sample" and numbers:
            msg["fn"] = _shifted(msg["fn"], numbers)


def _parameters(fn: Any) -> dict[str, jax.Array]:
    """Return the continuous parameters of a prior, by name."""
    base, real = without_wrappers(fn), jnp.result_type(float)
    return {
        name: jnp.asarray(part, jnp.promote_types(jnp.result_type(part), real))
        for name, part in _given(base).items()
        if not base.arg_constraints[name].is_discrete
    }


def _given(base: Any) -> dict[str, Any]:
    known = {name: vars(base).get(name) for name in base.arg_constraints}
    return {name: part for name, part in known.items() if part is not None}


def _shifted(fn: Any, numbers: Mapping[str, Any]) -> Any:
    """Return a prior with numbers added to its parameters; masks and expansions stay."""
    if isinstance(fn, WRAPPERS):
        new = copy.copy(fn)
        new.base_dist = _shifted(fn.base_dist, numbers)
        return new
    moved = {name: part + numbers.get(name, 0) for name, part in _given(fn).items()}
    return type(fn)(**moved, validate_args=False)
