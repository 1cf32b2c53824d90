"""Evaluate a training's objective: weighted losses, ELBO terms, held-out score, check."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from moment_calculus.objectives.by_draws import SEED, Evaluations, loss_by_draws
from moment_calculus.optimisation.batches import AllData, Arguments
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import ByDraws, Fit
from moment_calculus.optimisation.weighting import PlateScaling, weight_site
from numpyro_moments.objectives.base import Program
from numpyro_moments.prediction.predict import log_predictive
from numpyro_moments.sites.traces import Part
from numpyro_moments.svi import SVI


class SiteScaling(Messenger):
    """Handler that rescales a mini-batch to the full data and weights latent sites."""

    def __init__(
        self, fn: Callable, plates: PlateScaling | None, batch_size: int | None, kl_weight: Any
    ) -> None:
        super().__init__(fn)
        self.plates, self.batch_size, self.kl_weight = plates, batch_size, kl_weight

    def process_message(self, msg: Any) -> None:
        """Weight a site."""
        if msg["type"] == "sample":
            weight_site(msg, self.plates, self.batch_size, self.kl_weight, _with_full_size)


def _with_full_size(frame: Any, rows: Any) -> Part:
    return Part(frame.name, frame.dim, frame.size, rows)


@dataclass(frozen=True)
class Problem:
    """A training's model, guide, objective and held-out data."""

    svi: SVI  # of model, guide and objective
    plates: PlateScaling | None = None  # None: all data at once
    held_out: Arguments | None = None  # arguments of the model

    def update(self, state: Any, data: Arguments, batch_size: int | None, kl_weight: Any) -> Any:
        """Take one step; return the next state, and the loss before it."""
        args, kwargs = data
        outcome = self.weighted(batch_size, kl_weight).update(state, *args, **kwargs)
        if self.plates is not None:
            self.plates.check_observed()
        return outcome

    def weighted(self, batch_size: int | None, kl_weight: Any) -> SVI:
        """Return model and guide with the weights of one step."""
        plates = None if batch_size is None else self.plates
        if plates is None and kl_weight is None:
            return self.svi
        svi = copy.copy(self.svi)
        svi.model = SiteScaling(svi.model, plates, batch_size, kl_weight)
        if kl_weight is not None:
            svi.guide = SiteScaling(svi.guide, None, batch_size, kl_weight)
        return svi

    def terms(
        self, params: dict[str, Any], mutable: Any, data: Arguments, batch_size: int | None
    ) -> dict[str, float]:
        """Return the terms of the ELBO by site; empty if the objective has none."""
        if not hasattr(self.svi.loss, "sum_sites"):
            return {}
        losses = self._terms(params, mutable, data, batch_size)
        return {name: -float(loss) for name, loss in losses.items()}

    @cached_property
    def _terms(self) -> Any:
        loss = copy.copy(self.svi.loss)
        loss.sum_sites = False

        def terms(
            params: dict[str, Any], mutable: Any, arrays: list, rest: Static, batch_size: int | None
        ) -> Any:
            svi, (args, kwargs) = self.weighted(batch_size, None), rest.joined(arrays)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return loss.loss(jax.random.key(0), values, svi.model, svi.guide, *args, **kwargs)

        compiled = jax.jit(terms, static_argnums=(3, 4))
        return lambda params, mutable, data, batch_size: compiled(
            params, mutable, *apart(data), batch_size
        )

    def score(self, params: dict[str, Any], mutable: Any = None) -> Any:
        """Return the held-out log-likelihood of unconstrained parameters."""
        return self._score(params, mutable)

    @cached_property
    def _score(self) -> Any:
        assert self.held_out is not None
        arrays, rest = apart(self.held_out)

        def score(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            args, kwargs = rest.joined(arrays)
            svi, propagation = self.svi, getattr(self.svi.loss, "propagation", None)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return log_predictive(propagation, svi.model, svi.guide, values, *args, **kwargs)

        compiled = jax.jit(score)
        return lambda params, mutable: compiled(params, mutable, arrays)


@dataclass(frozen=True)
class Static:
    """The structure of arguments, and their leaves that are no arrays."""

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


# Compilation takes longer than the run: with these options 0.3 instead of 3.4 s for a
# network of two layers.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def trained_loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, select_rows: Callable
) -> ByDraws:
    """Return the trained loss by Monte Carlo; ``select_rows`` takes rows of an array."""

    def evaluations_on(part: AllData, is_last: bool) -> Evaluations:
        plates = PlateScaling(options.rows_of(part), options.plate)
        subset_problem = problem if part is source else replace(problem, plates=plates)
        return _evaluations_of(subset_problem, part, fit.params, is_last)

    return loss_by_draws(fit, problem.svi.loss, source, options, select_rows, evaluations_on)


def _evaluations_of(
    problem: Problem, source: AllData, params: dict[str, Any], is_last: bool
) -> Evaluations:
    objective = problem.svi.loss
    quick = partial(jax.jit, compiler_options=QUICK if jax.default_backend() == "cpu" else None)

    def program(
        params: dict[str, Any], arrays: list, rest: Static, batch_size: int | None
    ) -> Program:
        args, kwargs = rest.joined(arrays)
        weighted = problem.weighted(batch_size, None)
        return Program(weighted.model, weighted.guide, args, kwargs, params)

    @partial(quick, static_argnums=(1, 2, 5))
    def sampled(
        arrays: list, rest: Static, batch_size: int | None, params: Any, key: Any, count: int
    ) -> tuple[jax.Array, ...]:
        inputs = program(params, arrays, rest, batch_size)
        return objective.by_draws(count).particle_terms(key, inputs)[0]

    @partial(quick, static_argnums=(1, 2))
    def closed(
        arrays: list, rest: Static, batch_size: int | None, params: Any, key: Any
    ) -> jax.Array:
        inputs = program(params, arrays, rest, batch_size)
        call = inputs.model, inputs.guide, *inputs.args
        return objective.loss(key, params, *call, **inputs.kwargs)

    key_of = partial(jax.random.fold_in, jax.random.key(SEED))

    def particles(data: Arguments, count: int, call_index: int) -> tuple[np.ndarray, ...]:
        parts = sampled(*apart(data), source.size, params, key_of(call_index), count)
        return tuple(np.asarray(part, np.float64) for part in parts)

    def loss(data: Arguments, call_index: int) -> float:
        return float(closed(*apart(data), source.size, params, key_of(call_index)))

    return Evaluations(particles, loss, is_last)
