"""Train a guide to convergence with the function ``fit``."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_inference.errors import parameter_names_error
from moment_inference.objectives.by_draws import warn_unless_confirmed
from moment_inference.objectives.observations import expecting_observations
from moment_inference.objectives.starts import finite_vector, with_valid_start
from moment_inference.optimisation.batches import (
    AllData,
    first_arguments,
    whole_arguments,
)
from moment_inference.optimisation.compilation import compilation
from moment_inference.optimisation.minimiser import (
    MAX_DENSE_PARAMETERS,
    Minimiser,
    check_deterministic,
    check_no_subsample,
)
from moment_inference.optimisation.options import LEARNING_RATE, STRETCH, Options
from moment_inference.optimisation.outcome import Course, Fit
from moment_inference.optimisation.rounds import cached, initial_outcome
from moment_inference.optimisation.storage.trainings import Checkpoint, data_digest, fitted
from moment_inference.optimisation.training import Progress, Trainer, write_below_bar
from moment_inference.optimisation.weighting import PlateScaling
from numpyro_moments.evaluation.arguments import checked, in_jax, is_array
from numpyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from numpyro_moments.fitting.flat_loss import FlatLoss, multiplied_start
from numpyro_moments.fitting.gradients import GradientTrainer
from numpyro_moments.fitting.precision import HeldParameter, held_scale
from numpyro_moments.fitting.problem import Problem, trained_loss_by_draws
from numpyro_moments.fitting.storing import (
    OBJECTIVES,
    VERBS,
    ArgumentShapes,
    PriorReplacement,
    arrays_in,
    density_text,
    stored_training,
    with_prior,
)
from numpyro_moments.sites.subsamples import DrawnSubsamples
from numpyro_moments.svi import SVI


@checked
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
    precision: str | None = None,
    held_out: Any = None,
    patience: int = 10,
    every: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress_bar: bool | None = None,
    checkpoint: str | PathLike[str] | None = None,
    restarts: int = 1,
    prior: Fit | None = None,
    start: Fit | None = None,
    params: dict[str, Any] | None = None,
    float64: bool = False,
    by_draws: bool | float = True,
    acknowledge: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

    Args:
        model: the model.
        guide: a guide, also one without a model; its scales set the units of the steps,
            where they are named like those of ``DVIGuide`` and ``AutoNormal``.
        *data: arguments of model and guide: arrays, also of NumPy, lists of numbers,
            columns and data frames, or dictionaries and tuples of these. A frame alone
            gives each argument of the model the column of its name; if the model needs
            none of its columns, it is one matrix. ``data=`` takes all arguments as a
            tuple or a dictionary, where the model has one that is named like an option.
            Or a loader of mini-batches (a DataLoader, an iterable for each epoch, or an
            iterator), which gives the arguments by name if a mini-batch is a dictionary,
            in order if it is a list. ``Moments`` stand for inputs that are uncertain or
            missing (``Moments.missing(x)``); the guide gets their means. Such models are
            best trained by ``BBAlphaELBO(alpha=1.0)``.
        **named: arguments of model and guide by name.

        Objective:
        objective: an ELBO; by default ``DeterministicELBO()``.
        method: ``"adam"``; or, for a deterministic loss of all data, ``"lbfgs"``, or
            ``"newton"`` with the dense Hessian of up to 1000 parameters, and
            Hessian–vector products beyond, both by SciPy.
        steps: largest number of steps; by default 2000, 5000 and 500.
        tolerance: where a deterministic method has converged: for ``"newton"`` the Newton
            decrement ½ gᵀ H⁻¹ g in nats, for ``"lbfgs"`` the relative change of the loss
            in ten steps; by default 1e-9, and never below what the precision of the loss
            shows. For ``"adam"`` the relative change of the mean loss from ``every``
            steps to the next; by default none. ``"lbfgs"`` and ``"adam"`` on all data
            look at the least curvature where they come to rest, by at most 24 slopes:
            they step off a saddle, and go on.

        Optimiser:
        learning_rate: of Adam, by default 0.01; or a function of the number of steps made
            before.
        optimiser: in place of Adam one of NumPyro's, with its schedule and gradient
            clipping, or one of Optax (NumPyro), or a function that makes one of torch of
            the parameters (Pyro). ``optimizer=`` is the same.

        Mini-batches:
        batch_size: rows of a mini-batch. All arguments are cut along their first axis,
            shuffled anew in every epoch by the seed; rows that fill no mini-batch are
            left out of an epoch.
        epochs: how often to go through all mini-batches, in place of ``steps``.
        rows: rows of all data, where a loader does not tell.
        plate: the plate of the rows, where it is not the only one of the mini-batch's
            size. What is observed in it counts as much as all rows do; a model that
            scales itself, by a subsampled plate or a handler, is left as it is.

        Loss:
        kl_warm_up: number of steps in which the weight of the KL divergence rises to one;
            or a tuple, steps without it and steps of the rise.
        precision: how the scale σ of Normal noise is set, 1/σ² being the precision of the
            observations: by default it is a parameter like others. ``"type-II"`` takes it
            from the optimiser and sets it after each epoch, on all rows at once, to what
            makes the ELBO largest, σ² = Σ E(y − f)² / N; ``"profile"`` puts this into the
            loss of every step, for all data at once. Both end where training σ ends. The
            model has to have σ as a parameter of one number.

        Watching:
        held_out: arguments of the model, with observations, that are not trained on. The
            parameters with the highest log predictive density of these are kept.
        patience: evaluations of it without a rise after which the training stops.
        every: steps between two looks at what is held out, of the callback, and two
            checkpoints; by default 100. A deterministic method begins a new round with
            each.
        callback: called with the :class:`Progress`; it ends the training by returning
            True.
        progress_bar: whether a bar shows the ELBO and its parts; by default on terminals.
        checkpoint: path of a file that is written all along; if it exists, the fit goes
            on from it and ends as if it had never been interrupted, on the same machine
            bit for bit.

        Starts:
        start: an earlier fit with the same sites, whose parameters this one begins with; by
            default it begins anew.
        params: parameters to begin with, of an earlier fit; by default initial ones.
        prior: an earlier fit with a ``DVIGuide``, on other data: its posterior takes the
            place of the model's prior. Sites in a plate with what is observed are of the
            rows, and keep theirs.
        restarts: trainings from different starts, the best of which is kept.
        seed: of initial values, the order of mini-batches and all draws of the training.

        Numbers:
        float64: whether to compute in double precision, with doubles of the arrays among
            the arguments; those that the model has elsewhere, such as in closures, are
            the model's own. The result has doubles; guide and model themselves are left in
            single precision where the model is, so that ``Predictive`` takes them.
        by_draws: whether to compare a closed-form loss with draws of the guide in the end.
            They agree, contradict it, or cannot tell, see ``Fit.by_draws``, and the last two
            warn. Where the last random map is Gaussian given its inputs, all sites but its
            own are drawn, and what is left is a closed form. Of more than 2000 rows both are
            of that many, drawn at random and scaled up as a mini-batch is; of all where the
            arguments have not the same rows, or the model does not run on fewer. It takes a
            tenth of the time of the fit, or two seconds of the processor if that is more; a
            number says how many. Random states of the user are left as they are.
        acknowledge: whether L-BFGS and Newton's method may take a rule book that is no bound.

    Returns:
        The trained parameters, the losses and why it stopped; ``params`` are those that
        ``predict`` and NumPyro's ``Predictive`` take.

    Raises:
        ValueError: if options are unknown or do not go together, the method needs a
            deterministic loss and this one is not, or a finite loss at the start; if it
            is not clear how a mini-batch is to be scaled; if the order of a loader cannot
            be restored.
        StoredFileError: if the checkpoint is damaged, or of another fit.
        UnsupportedMoments: if the model leaves the supported operations, or data are not
            finite, outside of what a distribution takes, or of another shape.
        TypeError: if model, guide or objective are something else, or a name is neither
            an option nor an argument of the model.

    Warns:
        UserWarning: if the model observes nothing.
        LossByDrawsWarning: if draws contradict the loss, or cannot tell, see ``by_draws``.

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    options = Options.of_call(locals())
    trained = fit_with(options, model, guide, data, named, objective, params)
    return trained.with_model(model, VERBS)


def fit_with(
    options: Options,
    model: Callable,
    guide: Callable,
    data: tuple,
    named: dict[str, Any],
    objective: ELBO | None = None,
    params: dict[str, Any] | None = None,
) -> Fit:
    """Train a guide as :func:`fit` does, with its options in one object."""
    double = jax.enable_x64(True) if options.float64 else contextlib.nullcontext()
    with double, expecting_observations(), options.compilation_shown():
        started = time.perf_counter()
        data, named = in_jax((data, named), options.float64)
        of_batch = partial(_of_batch, double=options.float64)
        source = options.source(data, named, _rows, of_batch, None)
        streamed_model = with_prior(model, options.prior, source)
        params = params if options.start is None else options.start.params
        objective = OBJECTIVES.resumed(options.checkpoint, objective, guide)
        options.check_book(objective)
        shapes = ArgumentShapes.of(source)
        problem, states = _begun(options, streamed_model, guide, objective, source, params)
        fits = [
            _fitted(options, problem, source, part, started)
            for part in ([states] if options.method == "adam" else [[state] for state in states])
        ]
        best = min(fits, key=lambda fit: fit.rank)
        best.objective, best.sites = problem.objective, shapes
        if not np.isfinite(best.losses).all():
            _explain(problem, source)
        if problem.held_out is not None and not np.isfinite([*best.held_out.values()]).all():
            refuse_nonfinite_inputs(model, *problem.held_out)
        if options.by_draws:
            best.by_draws = trained_loss_by_draws(problem, source, options, best, _rows)
            write_below_bar(str(best.by_draws), options.progress_bar)
            warn_unless_confirmed(best.by_draws)
        return best


def _begun(
    options: Options,
    model: Callable,
    guide: Callable,
    objective: ELBO | None,
    source: AllData,
    params: dict[str, Any] | None,
) -> tuple[Problem, list[Any]]:
    """Return the problem, and the initial state of every restart."""
    rate = LEARNING_RATE if options.learning_rate is None else options.learning_rate
    svi = SVI(model, guide, options.optimiser or Adam(rate), loss=objective)
    args, named = first_arguments(source)
    key = jax.random.key(options.seed)
    noise = None
    if options.precision is not None:
        svi, noise = held_scale(svi, options.precision, key, (args, named))
    keys = [key, *(jax.random.fold_in(key, part) for part in range(1, options.restarts))]
    with DrawnSubsamples() as drawn:
        states = with_valid_start(
            guide, lambda: [svi.init(key, *args, init_params=params, **named) for key in keys]
        )
    if options.method != "adam":
        check_no_subsample(drawn.plates)
    made = {**svi.get_params(states[0]), **(states[0].mutable_state or {})}
    if options.start is not None and options.start.params.keys() != made.keys():
        raise parameter_names_error(options.start.params, made)
    batches = type(source) is not AllData
    plates = PlateScaling(options.rows_of(source), options.plate) if batches else None
    held_out = in_jax(options.held_out_arguments, options.float64)
    return Problem(svi, plates, held_out, noise), states


def _explain(problem: Problem, source: AllData) -> None:
    """Raise UnsupportedMoments if data make the loss infinite."""
    args, named = whole_arguments(source)
    problem.svi.init(jax.random.key(0), *args, **named)  # checks the observations
    refuse_nonfinite_inputs(problem.svi.model, args, named)


def _fitted(
    options: Options, problem: Problem, source: AllData, states: Sequence[Any], started: float
) -> Fit:
    trainer: Trainer
    course: Course
    named: Callable[[Any], dict[str, Any]]
    if options.method == "adam":
        stretch = options.stretch or STRETCH
        trainer = GradientTrainer(problem, states, source, options.warm_up, stretch)
        trainer.prepare()
        course, named = Course(), trainer.named
    else:
        with compilation():
            trainer = _minimiser(options, problem, source, states[0])
        course, named = trainer.outcome, trainer.values_at
    guide, model = problem.svi.guide, problem.svi.model
    model = model.fn if isinstance(model, HeldParameter) else model

    def checkpoint() -> Checkpoint:
        args, kwargs = first_arguments(source)
        is_streamed = isinstance(model, PriorReplacement)
        unstreamed = model.fn if is_streamed else model
        return Checkpoint.of_fit(
            options,
            source,
            problem.objective,
            stored_training(unstreamed, guide, args, kwargs, problem.objective),
            lambda kept: arrays_in(named(kept)),
            digest=_digest,
            density=functools.partial(density_text, unstreamed, args, kwargs),
            prior=_digest(model.arrays) if is_streamed else None,
            float64=bool(jax.config.read("jax_enable_x64")),
            shuffles_globally=False,
        )

    return fitted(options, source, guide, trainer, course, checkpoint, started)


def _digest(data: Any) -> str:
    return data_digest(np.asarray(leaf) for leaf in jax.tree.leaves(data) if is_array(leaf))


def _minimiser(options: Options, problem: Problem, source: AllData, state: Any) -> Minimiser:
    if state.mutable_state is not None and problem.noise is None:
        raise ValueError(
            "mutable state (batch statistics) changes the loss from step to step: use "
            "method='adam', or evaluate the module with its running averages"
        )
    data = source.arguments(0)
    loss = FlatLoss(problem.svi, state.rng_key, *data)
    flat, unravel = ravel_pytree(problem.svi.optim.get_params(state.optim_state))
    values = loss.two_values(unravel(flat))
    if np.isnan(values[0]):
        args, kwargs = data
        problem.svi.evaluate(state, *args, **kwargs)  # not compiled: it names the cause
    check_deterministic(*values)
    objective = cached(loss.objective(flat, unravel))
    start = finite_vector(
        objective,
        np.asarray(flat, np.float64),
        lambda factors: np.asarray(
            ravel_pytree(multiplied_start(problem.svi, unravel(flat), factors))[0], np.float64
        ),
    )
    outcome = initial_outcome(objective, start, lambda: _explain(problem, source))
    objective.units(start)  # compiles before the steps are timed; so does the next call
    if options.method == "newton" and start.size <= MAX_DENSE_PARAMETERS:
        objective.hessian(start)
    at = lambda place: unravel(jnp.asarray(place, flat.dtype))  # noqa: E731
    return Minimiser(
        objective,
        outcome,
        options.method,
        options.tolerance,
        lambda place: problem.values(at(place)),
        lambda place: problem.terms(at(place), None, data, None),
        lambda place: float(problem.score(at(place))),
    )


def _of_batch(batch: Any, double: bool = False) -> Any:
    """Return a loader's batch with arrays of JAX, but for flags."""

    def converted(part: Any) -> Any:
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return jnp.asarray(part) if is_number else in_jax(part, double)

    return jax.tree.map(converted, batch)


def _rows(data: Any, indices: Any) -> Any:
    return jax.tree.map(lambda part: part[indices], data)
