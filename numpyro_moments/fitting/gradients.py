"""Train by compiled steps of an optimiser: many in one call, or one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from moment_inference.objectives import starts
from moment_inference.optimisation import (
    STRETCH,
    Course,
    ProgressBar,
    batches,
    compilation,
    minimiser,
)
from numpyro_moments.evaluation.arguments import Static, apart
from numpyro_moments.evaluation.programs import LOOKS_AT_NUMBERS, Programs
from numpyro_moments.fitting.flat_loss import FlatLoss, multiplied_start
from numpyro_moments.fitting.problem import Problem


def are_finite(state: Any) -> bool:
    """Return whether the numbers of a state are finite: Adam keeps the slope and its square."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in leaves)


class GradientTrainer:
    """Trains by an optimiser of NumPyro, several restarts side by side."""

    def __init__(
        self,
        problem: Problem,
        states: Sequence[Any],  # of the SVI, one for each restart
    ) -> None:
        self.problem = problem
        self.warm_up = problem.options.warm_up  # of the KL divergence; None: its full weight
        self.stretch = problem.options.stretch or STRETCH  # steps in one call, at most
        self.restarts, self.several = len(states), len(states) > 1
        self._state = states[0]
        if self.several:
            self._state = jax.tree.map(lambda *parts: jnp.stack(parts), *states)
        self._losses: list[np.ndarray] = []  # of each stretch, [steps, restarts]
        self._chosen = 0
        self._final: list[Any] | None = None
        self._last: batches.Arguments | None = None

    def prepare(self) -> None:
        """Compile before the first step, unless a loader gives the data."""
        if not isinstance(self.problem.source, batches.LoaderBatches):
            with compilation():
                self._run  # noqa: B018

    def advance(self, course: Course, steps: int, bar: ProgressBar) -> None:
        """Train up to a number of steps."""
        while course.steps < steps and not course.reason:
            count = min(steps - course.steps, self.stretch)
            losses = self._advance(course, count)
            self._losses.append(losses)
            course.losses += losses.min(1).tolist()
            course.steps += len(losses)
            if course.losses:
                bar.report(len(losses), course.loss)

    def _with_smaller_start(self, start: Any) -> bool:
        """Return whether a first step from smaller scales is finite, and begin with it."""
        self._state, init = start, self.problem.svi.optim.init
        params = self._trained()[0]

        def begin(factors: starts.Factors) -> None:
            new = multiplied_start(self.problem.svi, params, factors)
            optim_state = jax.vmap(init)(new) if self.several else init(new)
            self._state = start._replace(optim_state=optim_state)

        def loss_at(factors: starts.Factors) -> float:
            begin(factors)
            state, losses = self._run(self._state, *self._inputs(0, 1), 1)
            loss = float(np.max(np.asarray(losses[0])))
            return loss if are_finite(state.optim_state) else math.nan

        first = self._run(start, *self._inputs(0, 1), 1)[1][0]
        factors = starts.finite_start(float(np.max(np.asarray(first))), loss_at)
        if factors is not None:
            begin(factors)
        return factors is not None

    def _advance(self, course: Course, count: int) -> np.ndarray:
        """Take steps; return losses [steps, restarts], fewer if the data end."""
        if isinstance(self.problem.source, batches.LoaderBatches):
            losses = self._load(course, count)
        else:
            first = course.steps
            start = self._state
            self._state, found = self._run(start, *self._inputs(first, count), count)
            is_finite = np.isfinite(found[:count]).all() and are_finite(self._state.optim_state)
            if first == 0 and not is_finite and self._with_smaller_start(start):
                self._state, found = self._run(self._state, *self._inputs(first, count), count)
            losses = np.asarray(found, np.float64)[:count]
        return losses.reshape(len(losses), -1)

    def _load(self, course: Course, count: int) -> np.ndarray:
        source, found = self.problem.source, []
        for step in range(course.steps, course.steps + count):
            try:
                self._last = source.arguments(step)
            except batches.Exhausted as end:
                course.stop(False, str(end))
                break
            arrays, rest = apart(self._last)
            weight = None if self.warm_up is None else self.warm_up.weight(step)
            self._state, loss = self._one(self._state, arrays, rest, source.size, weight)
            found.append(loss)
        return np.asarray(found, np.float64).reshape(len(found), -1)

    @cached_property
    def _one(self) -> Any:
        """Return one step on a loaded mini-batch, compiled for each shape."""

        def one(state: Any, arrays: list, rest: Static, batch: int | None, weight: Any) -> Any:
            return self._update(state, rest.joined(arrays), batch, weight)

        return jax.jit(one, static_argnums=(2, 3))

    def _update(self, state: Any, data: batches.Arguments, batch: int | None, weight: Any) -> Any:
        def update(state: Any) -> Any:
            return self.problem.update(state, data, batch, weight)

        return jax.vmap(update)(state) if self.several else update(state)

    def _after_epoch(self, state: Any, data: batches.Arguments) -> Any:
        def after(state: Any) -> Any:
            return self.problem.after_epoch(state, data)

        return jax.vmap(after)(state) if self.several else after(state)

    def _inputs(self, first: int, count: int) -> tuple[list, Any, Any, Any]:
        """Return data, rows of mini-batches, weights and ends of epochs, padded to a stretch."""
        steps, source = range(first, first + self.stretch), self.problem.source
        arrays, _ = apart((source.args, source.kwargs))
        rows = weights = ends = None
        if isinstance(source, batches.ShuffledBatches):
            rows = np.stack([source.indices(step) for step in steps[:count]])
            rows = np.concatenate([rows, np.zeros([self.stretch - count, rows.shape[1]], int)])
        if self.warm_up is not None:
            weights = np.array([self.warm_up.weight(step) for step in steps], np.float32)
        if self.problem.noise is not None and not self.problem.noise.profiled:
            per_epoch = getattr(source, "per_epoch", 1)
            ends = np.array([(step + 1) % per_epoch == 0 for step in steps])
        return arrays, rows, weights, ends

    @cached_property
    def _run(self) -> Any:
        """Return a stretch of steps, compiled before the first one."""
        source = self.problem.source
        _, rest = apart((source.args, source.kwargs))
        shape = [self.stretch, *([self.restarts] if self.several else [])]

        def run(state: Any, arrays: list, rows: Any, weights: Any, ends: Any, count: Any) -> Any:
            whole = rest.joined(arrays)

            def body(step: Any, carry: Any) -> Any:
                state, losses = carry
                data = whole
                if rows is not None:
                    data = jax.tree.map(lambda part: part[rows[step]], whole)
                weight = None if weights is None else weights[step]
                state, loss = self._update(state, data, source.size, weight)
                if ends is not None:
                    state = jax.lax.cond(
                        ends[step], lambda at: self._after_epoch(at, whole), lambda at: at, state
                    )
                return state, losses.at[step].set(loss)

            losses = jnp.zeros(shape, jnp.result_type(float))
            return jax.lax.fori_loop(0, count, body, (state, losses))

        inputs = self._state, *self._inputs(0, self.stretch), self.stretch
        name = "steps", rest.structure, source.size, *shape
        try:
            return self.problem.programs(rest).compiled(name, run, *inputs)
        except LOOKS_AT_NUMBERS:
            if type(source) is not batches.AllData:
                raise
            data = inputs[1]
            fixed = lambda state, _, *others: run(state, data, *others)  # noqa: E731
            return Programs.alone().compiled(name, fixed, *inputs)

    def leave_saddle(self) -> bool:
        """Move restarts off saddles of a deterministic loss; return whether one moved."""
        closed = getattr(self.problem.svi.loss, "in_closed_form", False)
        if (
            type(self.problem.source) is not batches.AllData
            or not closed
            or self._state.mutable_state is not None
        ):
            return False
        params, _ = self._trained()
        parts = [params]
        if self.several:
            take = lambda part: jax.tree.map(lambda leaf: leaf[part], params)  # noqa: E731
            parts = list(map(take, range(self.restarts)))
        lower = [self._beside(part) for part in parts]
        if all(part is None for part in lower):
            return False
        moved = [part if new is None else new for part, new in zip(parts, lower, strict=True)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)
        new = stacked if self.several else moved[0]
        # Optimisers keep the parameters themselves in their states.
        changed = dict(zip(map(id, jax.tree.leaves(params)), jax.tree.leaves(new), strict=True))
        swap = lambda leaf: changed.get(id(leaf), leaf)  # noqa: E731
        self._state = self._state._replace(optim_state=jax.tree.map(swap, self._state.optim_state))
        return True

    def _beside(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return parameters beside a saddle with a lower loss; None if there are none."""
        flat, unravel = ravel_pytree(params)
        objective = self._flat.objective(flat, unravel)
        one, other = self._flat.two_values(params)
        lower = (
            minimiser.step_off_saddle(objective, np.asarray(flat, np.float64), one)
            if one == other
            else None
        )
        return None if lower is None else unravel(jnp.asarray(lower[0], flat.dtype))

    @cached_property
    def _flat(self) -> FlatLoss:
        program = self.problem.program(self.problem.source.arguments(0), {})
        return FlatLoss.of(self.problem.svi, program, jax.random.key(0))

    def finish(self, course: Course) -> None:
        """Choose the best restart, and set its losses."""
        losses = self._all_losses()
        all_data = type(self.problem.source) is batches.AllData
        if all_data:
            _, last = self._run(self._state, *self._inputs(course.steps, 1), 1)
            row = np.asarray(last, np.float64).reshape(-1, self.restarts)[:1]
            losses = np.concatenate([losses, row])
        if course.best is None and len(losses):
            recent = losses[-1 if all_data else -self.stretch :].mean(0)
            self._chosen = int(np.argmin(np.where(np.isfinite(recent), recent, np.inf)))
        course.losses = losses[:, self._chosen].tolist()

    def _all_losses(self) -> np.ndarray:
        return np.concatenate([np.zeros([0, self.restarts]), *self._losses])

    def values(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return self.named(self.snapshot())

    def named(self, kept: list[Any]) -> dict[str, Any]:
        """Return kept parameters by name."""
        return self.problem.values(*self._tree(kept))

    def _tree(self, kept: list[Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return unconstrained parameters and mutable state by name."""
        structure = jax.tree.structure(self._trained())
        return jax.tree.unflatten(structure, map(jnp.asarray, kept))

    def _trained(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        params = self.problem.svi.optim.get_params(self._state.optim_state)
        return params, self._state.mutable_state

    def terms(self) -> dict[str, float]:
        """Return the terms of the ELBO by site, on the last mini-batch."""
        data = self._last or self.problem.source.arguments(0)
        params, mutable = self._tree(self.snapshot())
        return self.problem.terms(params, mutable, data, self.problem.source.size)

    def held_out_log_likelihood(self) -> float:
        """Return the best restart's held-out log-likelihood, and choose it."""
        score = jax.vmap(self.problem.score) if self.several else self.problem.score
        found = np.atleast_1d(np.asarray(score(*self._trained()), np.float64))
        self._chosen = int(np.argmax(np.where(np.isnan(found), -np.inf, found)))
        return float(found[self._chosen])

    def snapshot(self) -> list[Any]:
        """Return the unconstrained parameters of the chosen restart."""
        if self._final is not None:
            return self._final
        leaves = jax.tree.leaves(self._trained())
        return [leaf[self._chosen] for leaf in leaves] if self.several else leaves

    def load_snapshot(self, snapshot: list[Any]) -> None:
        """Return to the parameters of a snapshot."""
        self._final = snapshot

    def state(self) -> Any:
        """Return all that the next steps depend on."""
        return {
            "svi": [_plain(leaf) for leaf in jax.tree.leaves(self._state)],
            "losses": self._all_losses(),
            "source": self.problem.source.state(),
        }

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        leaves, structure = jax.tree.flatten(self._state)
        saved = [_like(leaf, part) for leaf, part in zip(leaves, state["svi"], strict=True)]
        self._state = jax.tree.unflatten(structure, saved)
        self._losses = [np.asarray(state["losses"])]
        self.problem.source.restore(state["source"])


def _plain(leaf: Any) -> Any:
    """Return an array that can be written; for a random key its data."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _like(leaf: Any, saved: Any) -> Any:
    """Return a saved array in the form of a leaf."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
    return jnp.asarray(saved, leaf.dtype)
