"""Changes of a model by numbers that are zero for the model as it is."""

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

from guides.numpyro.supports import is_latent
from moment_calculus.response.data import Data
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.fitting.objective import FlatLoss
from numpyro_moments.fitting.weighting import scale_by
from numpyro_moments.prediction.predict import is_factor
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.transformed import WRAPPERS

Changed = tuple[Callable, Callable]  # model and guide
Change = tuple[Any, Callable[[Callable, Callable, Any], Changed]]  # zeros, and what they change


class Perturbed:
    """The loss of a changed model.

    Args:
        loss: of the model.
        flat: the parameters.
        unravel: what makes them a dictionary.
        change: numbers that are zero for the model as it is, and what changes it by them.
        precision: in which all is computed.
    """

    def __init__(
        self, loss: FlatLoss, flat: Any, unravel: Callable, change: Change, precision: Precision
    ) -> None:
        self._loss, self._flat, self._unravel = loss, flat, unravel
        self._zeros, self._changed = change
        self._precision = precision

    def along(self, rows: np.ndarray) -> Any:
        """What the numbers change of the loss's slope along directions."""
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

        def along(flat: jax.Array, row: jax.Array) -> Any:
            def slope(numbers: list[jax.Array]) -> jax.Array:
                by_name = dict(zip(self._zeros, numbers, strict=True))
                return jax.jvp(lambda f: loss(f, by_name), (flat,), (row,))[1]

            return jax.grad(slope)([*self._zeros.values()])

        return jax.jit(jax.vmap(along, in_axes=(None, 0)))


def data_weights(sites: Mapping[str, dict], guide: Mapping[str, dict], datum: str | None) -> Change:
    """Weights of the data, less one.

    Args:
        sites: of the model.
        guide: of the guide.
        datum: a plate whose elements are the data; None for all around every observation.
    """
    data = Data.of(sites, is_factor, datum)
    data.check_guide(guide)

    def changed(model: Callable, guide: Callable, numbers: Any) -> Changed:
        weights = 1 + numbers[None]
        weighted = _Weighted(model, data, weights)
        return weighted, _Weighted(guide, data, weights) if data.local else guide

    return {None: jnp.zeros(data.shape)}, changed


class _Weighted(Messenger):
    """Weighs what is observed, and the latent sites that belong to a datum.

    Args:
        fn: model or guide.
        data: what a datum is.
        weights: of the data.
    """

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
    """What is added to the parameters of the priors, by site and parameter.

    Args:
        model: the model.
        sites: its sites.
        data: its arguments.
        named: likewise, by name.
    """
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
    return zeros, lambda model, guide, numbers: (_Shifted(model, numbers), guide)


def _written(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A parameter's shape before NumPyro gave it axes to meet the others with."""
    return shape[next((axis for axis, size in enumerate(shape) if size != 1), len(shape)) :]


class _Shifted(Messenger):
    def __init__(self, fn: Callable, numbers: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(fn)
        self.numbers = numbers

    def process_message(self, msg: Any) -> None:
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if msg["type"] == "sample" and numbers:
            msg["fn"] = _shifted(msg["fn"], numbers)


def _parameters(fn: Any) -> dict[str, jax.Array]:
    """What a prior was made from, by name, as far as it is continuous."""
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
    """A prior with other parameters inside its masks, expansions and independent dimensions."""
    if isinstance(fn, WRAPPERS):
        new = copy.copy(fn)
        new.base_dist = _shifted(fn.base_dist, numbers)
        return new
    moved = {name: part + numbers.get(name, 0) for name, part in _given(fn).items()}
    return type(fn)(**moved, validate_args=False)
