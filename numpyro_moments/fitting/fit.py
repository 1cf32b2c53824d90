"""One verb that trains a guide."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_calculus.hosts.checkpoints import Checkpoint
from moment_calculus.hosts.docstrings import FIT_ARGUMENTS, FIT_ERRORS, documented
from moment_calculus.hosts.mini_batches import PlateScaling
from moment_calculus.hosts.stored import data_digest
from moment_calculus.objectives.by_draws import warn_if_off
from moment_calculus.optimisation.batches import Loaded, Whole, arguments_of, first_of
from moment_calculus.optimisation.minimiser import Minimiser
from moment_calculus.optimisation.newton import DENSE
from moment_calculus.optimisation.options import LEARNING_RATE, STRETCH, Options
from moment_calculus.optimisation.outcome import Course, Fit
from moment_calculus.optimisation.progress import last_line
from moment_calculus.optimisation.rounds import remembering, started
from moment_calculus.optimisation.training import Progress, Trainer, train
from numpyro_moments.fitting.by_draws import loss_by_draws
from numpyro_moments.fitting.gradients import Gradients
from numpyro_moments.fitting.objective import FlatLoss
from numpyro_moments.fitting.problem import Problem, in_jax, is_array
from numpyro_moments.fitting.storing import arrays_in, joint_density, stored_training
from numpyro_moments.fitting.streaming import Streaming, streaming
from numpyro_moments.svi import SVI


@documented("NumPyro", arguments=FIT_ARGUMENTS, errors=FIT_ERRORS)
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: ELBO | None = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float | Callable | None = None,
    optimiser: Any = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    rows: int | None = None,
    plate: str | None = None,
    kl_warm_up: int | tuple[int, int] | None = None,
    held_out: Any = None,
    patience: int = 10,
    every: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress_bar: bool | None = None,
    checkpoint: str | PathLike[str] | None = None,
    restarts: int = 1,
    prior: Fit | None = None,
    params: dict[str, Any] | None = None,
    float64: bool = False,
    by_draws: bool = True,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

    {arguments}
        params: parameters to begin with, of an earlier fit; by default initial ones.
        **named: arguments of model and guide by name.

    Returns:
        The trained parameters, the losses and why it stopped; ``params`` are those that
        ``predict`` and NumPyro's ``Predictive`` take.

    {errors}

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    options = Options.among(locals())
    with jax.enable_x64(True) if float64 else contextlib.nullcontext():
        clock = time.perf_counter()
        source = options.source(in_jax(data), in_jax(named), _rows, _of_batch, None)
        told = model if prior is None else streaming(model, prior, *first_of(source))
        problem, states = _begun(options, told, guide, objective, source, params)
        fits = [
            _fitted(options, problem, source, part, clock)
            for part in ([states] if method == "adam" else [[state] for state in states])
        ]
        best = min(fits, key=lambda fit: fit.rank)
        if by_draws:
            best.by_draws = loss_by_draws(problem, source, options, best, _rows)
            last_line(str(best.by_draws), progress_bar)
            warn_if_off(best.by_draws)
        return best


def _begun(
    options: Options,
    model: Callable,
    guide: Callable,
    objective: ELBO | None,
    source: Whole,
    params: dict[str, Any] | None,
) -> tuple[Problem, list[Any]]:
    """The problem, and the initial state of every restart."""
    rate = LEARNING_RATE if options.learning_rate is None else options.learning_rate
    svi = SVI(model, guide, options.optimiser or Adam(rate), loss=objective)
    args, named = first_of(source)
    key = jax.random.key(options.seed)
    keys = [key, *(jax.random.fold_in(key, part) for part in range(1, options.restarts))]
    states = [svi.init(key, *args, init_params=params, **named) for key in keys]
    batches = type(source) is not Whole
    plates = PlateScaling(options.rows_of(source), options.plate) if batches else None
    held_out = None if options.held_out is None else in_jax(arguments_of(options.held_out))
    return Problem(svi, plates, held_out), states


def _fitted(
    options: Options, problem: Problem, source: Whole, states: Sequence[Any], clock: float
) -> Fit:
    trainer: Trainer
    course: Course
    named: Callable[[Any], dict[str, Any]]
    if options.method == "adam":
        stretch = options.stretch or STRETCH
        trainer = Gradients(problem, states, source, options.warm_up, stretch)
        trainer.prepare()
        course, named = Course(), trainer.named
    else:
        trainer = _minimiser(options, problem, source, states[0])
        course, named = trainer.outcome, trainer.values_at
    prepared = time.perf_counter()
    plan = functools.partial(options.plan, source)
    if options.checkpoint is None:
        train(trainer, course, plan())
    else:
        parameters = lambda kept: arrays_in(named(kept))  # noqa: E731
        _checkpoint(options, problem, source).train(trainer, course, plan, parameters)
    return course.fit(problem.svi.guide, trainer.values(), clock, prepared)


def _checkpoint(options: Options, problem: Problem, source: Whole) -> Checkpoint:
    svi = problem.svi
    if isinstance(source, Loaded):
        source.check_resumable(shuffles_globally=False)
    args, named = first_of(source)
    leaves = jax.tree.leaves((source.args, source.named))
    digest = data_digest(np.asarray(leaf) for leaf in leaves if is_array(leaf))
    settings = options.settings(digest, svi.loss, bool(jax.config.read("jax_enable_x64")))
    model = svi.model
    if isinstance(model, Streaming):
        settings["prior"], model = data_digest(map(np.asarray, model.arrays)), model.fn
    whole = not isinstance(source, Loaded)  # a loader may begin with other rows
    settings["density"] = joint_density(model, args, named, observed=whole)
    stored = stored_training(model, svi.guide, args, named)
    return Checkpoint(Path(options.checkpoint), stored, settings)


def _minimiser(options: Options, problem: Problem, source: Whole, state: Any) -> Minimiser:
    if state.mutable_state is not None:
        raise ValueError(
            "mutable state (batch statistics) changes the loss from step to step: use "
            "method='adam', or evaluate the module with its running averages"
        )
    data = source.arguments(0)
    loss = FlatLoss(problem.svi, state.rng_key, *data)
    flat, unravel = loss.starting(state)
    loss.check_deterministic(unravel(flat))
    objective = remembering(loss.objective(flat, unravel))
    start = np.asarray(flat, np.float64)
    outcome = started(objective, start)
    objective.units(start)  # compiles it before the clock of the steps begins, as does the next
    if options.method == "newton" and start.size <= DENSE:
        objective.curvature(start)
    at = lambda place: unravel(jnp.asarray(place, flat.dtype))  # noqa: E731
    return Minimiser(
        objective,
        outcome,
        options.method,
        options.tolerance,
        lambda place: problem.svi.constrain_fn(at(place)),
        lambda place: problem.terms(at(place), None, data, None),
        lambda place: float(problem.score(at(place))),
    )


def _of_batch(batch: Any) -> Any:
    """What a loader gives as arrays of JAX, also tensors of torch, and numbers but flags."""

    def converted(part: Any) -> Any:
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return jnp.asarray(part) if is_number else in_jax(part)

    return jax.tree.map(converted, batch)


def _rows(data: Any, indices: Any) -> Any:
    return jax.tree.map(lambda part: part[indices], data)
