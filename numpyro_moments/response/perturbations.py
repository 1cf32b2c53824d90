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
from numpyro_moments.likelihoods.derived import copied
from numpyro_moments.sites.posteriors import without_wrappers

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
    data = Data.of(sites, lambda site: type(without_wrappers(site["fn"])).__name__ == "Unit", datum)

    data.check_guide(guide)

    def changed(model: Callable, guide: Callable, numbers: Any) -> Changed:
        weights = _Weights(data, 1 + numbers[None])
        return _Weighted(model, weights), _Weighted(guide, weights) if data.local else guide

    return {None: jnp.zeros(data.shape)}, changed


class _Weights:
    """Weights of the data, the same array for all sites of a shape.

    Args:
        data: what a datum is.
        weights: of the data.
    """

    def __init__(self, data: Data, weights: jax.Array) -> None:
        self.data, self.weights = data, weights
        self._shaped: dict[tuple[int, ...], jax.Array] = {}

    def of(self, msg: Any) -> jax.Array | None:
        shape = self.data.weight_shape(msg["name"], msg)
        if shape is None:
            return None
        return self._shaped.setdefault(shape, self.weights.reshape(shape))


class _Weighted(Messenger):
    def __init__(self, fn: Callable, weights: _Weights) -> None:
        super().__init__(fn)
        self.weights = weights

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and (weights := self.weights.of(msg)) is not None:
            msg["scale"] = weights if msg["scale"] is None else msg["scale"] * weights


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
    base = without_wrappers(fn)
    if base is not fn:
        new = copied(fn)
        outer = new
        while without_wrappers(outer.base_dist) is not outer.base_dist:
            outer = outer.base_dist
        outer.base_dist = _shifted(base, numbers)
        return new
    moved = {name: part + numbers.get(name, 0) for name, part in _given(base).items()}
    return type(base)(**moved, validate_args=False)
