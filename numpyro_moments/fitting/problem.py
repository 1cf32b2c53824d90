"""Model, guide and objective that all methods of training share, and their arguments."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.optimisation.batches import Arguments
from moment_calculus.optimisation.weighting import PlateScaling
from numpyro_moments.fitting.weighting import Weighting
from numpyro_moments.prediction.predict import log_predictive
from numpyro_moments.svi import SVI


@dataclass(frozen=True)
class Problem:
    """Model, guide and objective, with held-out data."""

    svi: SVI  # of model, guide and objective
    plates: PlateScaling | None = None  # None: all data at once
    held_out: Arguments | None = None  # arguments of the model

    def update(self, state: Any, data: Arguments, batch: int | None, kl_weight: Any) -> Any:
        """Take one step; return the next state, and the loss before it."""
        args, named = data
        found = self.weighted(batch, kl_weight).update(state, *args, **named)
        if self.plates is not None:
            self.plates.check_observed()
        return found

    def weighted(self, batch: int | None, kl_weight: Any) -> SVI:
        """Return model and guide with the weights of one step."""
        plates = None if batch is None else self.plates
        if plates is None and kl_weight is None:
            return self.svi
        svi = copy.copy(self.svi)
        svi.model = Weighting(svi.model, plates, batch, kl_weight)
        if kl_weight is not None:
            svi.guide = Weighting(svi.guide, None, batch, kl_weight)
        return svi

    def terms(
        self, params: dict[str, Any], mutable: Any, data: Arguments, batch: int | None
    ) -> dict[str, float]:
        """Return the terms of the ELBO by site; empty if the objective has none."""
        if not hasattr(self.svi.loss, "sum_sites"):
            return {}
        losses = self._terms(params, mutable, data, batch)
        return {name: -float(loss) for name, loss in losses.items()}

    @cached_property
    def _terms(self) -> Any:
        loss = copy.copy(self.svi.loss)
        loss.sum_sites = False

        def terms(
            params: dict[str, Any], mutable: Any, arrays: list, rest: Static, batch: int | None
        ) -> Any:
            svi, (args, named) = self.weighted(batch, None), rest.joined(arrays)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return loss.loss(jax.random.key(0), values, svi.model, svi.guide, *args, **named)

        compiled = jax.jit(terms, static_argnums=(3, 4))
        return lambda params, mutable, data, batch: compiled(params, mutable, *apart(data), batch)

    def score(self, params: dict[str, Any], mutable: Any = None) -> Any:
        """Return the held-out log-likelihood of unconstrained parameters."""
        return self._score(params, mutable)

    @cached_property
    def _score(self) -> Any:
        assert self.held_out is not None
        arrays, rest = apart(self.held_out)

        def score(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            args, named = rest.joined(arrays)
            svi, propagation = self.svi, getattr(self.svi.loss, "propagation", None)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return log_predictive(propagation, svi.model, svi.guide, values, *args, **named)

        compiled = jax.jit(score)
        return lambda params, mutable: compiled(params, mutable, arrays)


@dataclass(frozen=True)
class Static:
    """The structure of some arguments, and their leaves that are no arrays, to be compiled in."""

    structure: Any
    leaves: tuple[tuple[int, Any], ...]  # by index

    def joined(self, arrays: list) -> Any:
        """Return the arguments with arrays, in order, in their places."""
        rest, leaves = dict(self.leaves), iter(arrays)
        places = range(self.structure.num_leaves)
        parts = [rest[place] if place in rest else next(leaves) for place in places]
        return jax.tree.unflatten(self.structure, parts)


def apart(data: Any) -> tuple[list, Static]:
    """Return the arrays among arguments, and the rest."""
    leaves, structure = jax.tree.flatten(data)
    arrays = [leaf for leaf in leaves if is_array(leaf)]
    rest = tuple((place, leaf) for place, leaf in enumerate(leaves) if not is_array(leaf))
    return arrays, Static(structure, rest)


def in_jax(data: Any) -> Any:
    """Return arguments with JAX arrays for arrays of NumPy and tensors of torch."""

    def converted(part: Any) -> Any:
        # JAX confuses traces of NumPy's arrays in single and in double precision.
        foreign = hasattr(part, "__array__") and not isinstance(part, jax.Array)
        return jnp.asarray(np.asarray(part)) if foreign else part

    return jax.tree.map(converted, data)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
