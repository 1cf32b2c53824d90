"""Perturb a model by numbers, such as weights of data, that are zero for the model as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from guides.numpyro.latent_sites import is_latent
from moment_calculus.optimisation.weighting import scale_by
from moment_calculus.response.data import Data
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.fitting.flat_loss import FlatLoss
from numpyro_moments.sites.posteriors import WRAPPERS, without_wrappers
from numpyro_moments.sites.traces import is_factor

Changed = tuple[Callable, Callable]  # model and guide
# Zeros for the numbers, and a function that changes model and guide by them.
Change = tuple[Any, Callable[[Callable, Callable, Any], Changed]]


class PerturbedLoss:
    """The loss of a model that is changed by numbers, which are zero for the model as it is."""

    def __init__(
        self, loss: FlatLoss, flat: Any, unravel: Callable, change: Change, precision: Precision
    ) -> None:
        self._loss, self._flat, self._unravel = loss, flat, unravel
        self._zeros, self._changed = change
        self._precision = precision

    def mixed_derivative(self, rows: np.ndarray) -> Any:
        """Return the derivative by the numbers of the loss's slope along directions [k, n]."""
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
            changed = FlatLoss(svi, self._loss.key, self._loss.data, self._loss.named)
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
    """Handler that weights observed sites, and the latent sites that belong to a datum."""

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
