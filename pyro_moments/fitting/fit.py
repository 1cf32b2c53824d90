"""Train a guide to convergence with the function ``fit``."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer.autoguide import AutoGuide
from pyro.optim import PyroOptim

from moment_calculus.errors import UnsupportedMoments
from moment_inference.objectives.by_draws import warn_unless_confirmed
from moment_inference.objectives.observations import NOT_FINITE, expecting_observations
from moment_inference.objectives.starts import finite_vector, with_valid_start
from moment_inference.optimisation.batches import (
    AllData,
    Arguments,
    first_arguments,
    whole_arguments,
)
from moment_inference.optimisation.minimiser import Minimiser
from moment_inference.optimisation.options import LEARNING_RATE, Options
from moment_inference.optimisation.outcome import Course, Fit
from moment_inference.optimisation.rounds import cached, initial_outcome
from moment_inference.optimisation.storage.trainings import Checkpoint, data_digest, fitted
from moment_inference.optimisation.training import Progress, Trainer, write_below_bar
from moment_inference.optimisation.weighting import PlateScaling
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.evaluation.arguments import checked
from pyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from pyro_moments.fitting.flat_loss import flat_loss
from pyro_moments.fitting.gradients import GradientTrainer, PyroOptimiser, TorchOptimiser
from pyro_moments.fitting.parameters import (
    Parameters,
    ParameterSnapshot,
    double_precision,
    frozen_parameters,
    new_parameters,
    parameters_to_float64,
    remember_fit,
    restart_if_fitted,
    to_float64,
    unconstrained_values,
)
from pyro_moments.fitting.problem import (
    GlobalRandomState,
    Problem,
    random_state_restored,
    trained_loss_by_draws,
)
from pyro_moments.fitting.storing import (
    OBJECTIVES,
    VERBS,
    density_text,
    leave_in_single,
    sites_of_training,
    stored_training,
    with_prior,
)
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.sites.traces import bind


@checked
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: Any = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float | Callable | None = None,
    optimiser: PyroOptim | Callable | None = None,
    scheduler: Callable | None = None,
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
    float64: bool = False,
    by_draws: bool | float = True,
    acknowledge: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

    The guide, and the model's own parameters with it, start afresh, also where an earlier
    ``fit`` trained the same guide; parameters of another training, by ``SVI`` or by one
    of Pyro's guides, are trained further, in place. The result has its own copies: passed
    to :func:`predict`, :func:`linear_response`, :func:`save` or :func:`diagnose`, it
    stays what it is when guide or model are trained again.

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
        optimiser: in place of Adam one of Pyro's, with its schedule and gradient
            clipping, or one of Optax (NumPyro), or a function that makes one of torch of
            the parameters (Pyro). ``optimizer=`` is the same.
        scheduler: makes a learning-rate schedule of torch from the optimiser; the
            schedule takes a step after every step of the optimiser.

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
        The guide, whose parameters are trained in place, the losses and why it stopped.

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
    with frozen_parameters(model):
        trained = fit_with(options, model, guide, data, named, objective, scheduler)
    if options.float64 and torch.get_default_dtype() is torch.float32:
        leave_in_single(trained, model, data, named)
    return trained.with_model(model, VERBS)


def fit_with(
    options: Options,
    model: Callable,
    guide: Callable,
    data: tuple,
    named: dict[str, Any],
    objective: Any = None,
    scheduler: Callable | None = None,
) -> Fit:
    """Train a guide as :func:`fit` does, with its options in one object."""
    started = time.perf_counter()
    double = double_precision() if options.float64 else contextlib.nullcontext()
    with double, expecting_observations(), options.compilation_shown():
        convert = to_float64 if options.float64 else lambda part: part
        source = options.source(convert(data), convert(named), _rows, convert, GlobalRandomState())
        objective = OBJECTIVES.resumed(options.checkpoint, objective, guide)
        options.check_book(objective)
        task = FitTask(
            options=options,
            objective=objective or DeterministicELBO(),
            model=model,
            streamed_model=with_prior(model, options.prior, source),
            source=source,
            held_out=convert(options.held_out_arguments),
            scheduler=scheduler,
            started=started,
        )
        restart_if_fitted(guide)
        with random_state_restored(), new_parameters(guide):
            try:
                result, parameters = trained_from_valid_start(task, guide)
            except UnsupportedMoments as error:
                # A row is named by its number in all data, not in a mini-batch.
                if NOT_FINITE in error.cause and source.size is not None:
                    refuse_nonfinite_inputs(model, *whole_arguments(source))
                raise
        if not np.isfinite(result.losses).all():
            refuse_nonfinite_inputs(model, *whole_arguments(source))
        if task.held_out is not None and not np.isfinite([*result.held_out.values()]).all():
            refuse_nonfinite_inputs(model, *task.held_out)
        remember_fit(result)
        result.context = ParameterSnapshot(parameters, (model, result.guide))
        result.objective = task.objective
        if options.by_draws:
            problem = task.problem(result.guide, kl_warm_up=False)
            result.by_draws = trained_loss_by_draws(problem, source, options, result, _rows)
            write_below_bar(str(result.by_draws), options.progress_bar)
            warn_unless_confirmed(result.by_draws)
        return result


def trained_from_valid_start(task: FitTask, guide: Callable) -> tuple[Fit, Parameters]:
    """Train a guide, from a smaller start if the model fails at the usual initial locations."""
    train = task.train_guide if task.options.restarts == 1 else functools.partial(best_of, task)

    def seeded_training() -> tuple[Fit, Parameters]:
        pyro.set_rng_seed(task.options.seed)
        return train(guide)

    is_set_up = lambda: getattr(guide, "_sites", None) is not None  # noqa: E731
    return with_valid_start(guide, seeded_training, is_set_up)


def _rows(data: Any, indices: Any) -> Any:
    """Return rows of tensors, also inside tuples and dictionaries."""
    return tree_map(lambda part: part[indices], data)


@dataclass(frozen=True, kw_only=True)
class FitTask:
    """What one call of ``fit`` does with a guide."""

    options: Options
    objective: Any
    model: Callable  # the user's
    streamed_model: Callable  # with the prior of an earlier fit
    source: AllData  # of the data
    held_out: Arguments | None
    scheduler: Callable | None  # makes a schedule of torch from the optimiser
    started: float  # when the preparations began

    def train_guide(self, guide: Callable) -> tuple[Fit, Parameters]:
        """Train a guide, and return the fit and the parameters."""
        bind(guide, self.streamed_model)
        problem = self.problem(guide, kl_warm_up=self.options.warm_up is not None)
        run = functools.partial(problem.unweighted_loss, first_arguments(self.source))
        if self.options.float64:
            parameters_to_float64(run)
        if self.options.start is not None:
            parameters = Parameters.from_run(run)
            parameters.load(unconstrained_values(parameters, self.options.start.params))
        if self.options.precision is not None:
            problem.hold_noise(self.options.precision, first_arguments(self.source))
        if self.options.method == "adam":
            steps = _steps(self.options, self.scheduler)
            trainer = GradientTrainer(problem, self.source, self.options.warm_up, steps)
            fit = self._fitted(problem, trainer, Course(), lambda kept: kept)
            return fit, problem.with_noise(trainer.parameters)
        minimiser, parameters = _minimiser(self.options, problem, self.source)
        at_vector = parameters.load_vector_and_copy
        fit = self._fitted(problem, minimiser, minimiser.outcome, at_vector)
        return fit, problem.with_noise(parameters)

    def problem(self, guide: Callable, *, kl_warm_up: bool) -> Problem:
        """Return the problem of training a guide."""
        batches = type(self.source) is not AllData
        rows = self.options.rows_of(self.source) if batches else None
        plates = PlateScaling(rows, self.options.plate) if batches else None
        return Problem(
            self.objective, self.streamed_model, guide, plates, kl_warm_up, self.held_out
        )

    def unweighted_loss(self, guide: Callable) -> Any:
        """Return a loss of a guide, which makes the guide's parameters."""
        bind(guide, self.streamed_model)
        args, named = first_arguments(self.source)
        return self.objective.differentiable_loss(self.streamed_model, guide, *args, **named)

    def _fitted(
        self,
        problem: Problem,
        trainer: Trainer,
        course: Course,
        parameters: Callable[[Any], dict[str, Any]],
    ) -> Fit:
        def checkpoint() -> Checkpoint:
            data, named = first_arguments(self.source)
            prior = self.options.prior
            return Checkpoint.of_fit(
                self.options,
                self.source,
                self.objective,
                stored_training(self.model, problem.guide, data, named, self.objective),
                parameters,
                digest=_digest,
                density=functools.partial(density_text, self.model, data, named),
                prior=None if prior is None else _digest(prior.params),
                float64=torch.get_default_dtype() is torch.float64,
                shuffles_globally=True,
            )

        guide, started = problem.guide, self.started
        sites = sites_of_training(self.model, self.source)
        fit = fitted(self.options, self.source, guide, trainer, course, checkpoint, started)
        return replace(fit, sites=sites)


def _digest(data: Any) -> str:
    tensors = [leaf for leaf in tree_leaves(data) if isinstance(leaf, torch.Tensor)]
    return data_digest(tensor.detach().cpu().numpy() for tensor in tensors)


def _steps(options: Options, scheduler: Callable | None) -> TorchOptimiser:
    if isinstance(options.optimiser, PyroOptim):
        if scheduler is not None:
            raise ValueError("a schedule of torch goes with an optimiser of torch, not of Pyro")
        return PyroOptimiser(options.optimiser)
    if options.optimiser is not None and not callable(options.optimiser):
        raise TypeError(
            "optimiser takes one of pyro.optim, or a function that makes one of torch of the "
            f"parameters, such as functools.partial(torch.optim.AdamW, lr=0.01), got "
            f"{type(options.optimiser).__name__}"
        )
    rate = options.learning_rate
    if callable(rate):
        return TorchOptimiser(functools.partial(torch.optim.Adam, lr=rate(0)), scheduler, rate)
    adam = functools.partial(torch.optim.Adam, lr=LEARNING_RATE if rate is None else rate)
    return TorchOptimiser(options.optimiser or adam, scheduler, None)


def _minimiser(options: Options, problem: Problem, source: AllData) -> tuple[Minimiser, Parameters]:
    data = source.arguments(0)
    loss = flat_loss(problem.objective, problem.model, problem.guide, *data)
    loss.check_deterministic()
    objective, parameters = cached(loss.objective()), loss.parameters

    def at_parameters(read: Callable[[], Any]) -> Callable[[Any], Any]:
        def at(vector: Any) -> Any:
            parameters.set_vector(vector)
            problem.with_noise(parameters)
            return read()

        return at

    start = parameters.vector()
    trainer = Minimiser(
        objective,
        initial_outcome(
            objective,
            finite_vector(objective, start, loss.smaller_starts(start)),
            lambda: refuse_nonfinite_inputs(problem.model, *data),
        ),
        options.method,
        options.tolerance,
        at_parameters(lambda: problem.with_noise(parameters).constrained_copies()),
        at_parameters(lambda: problem.terms(data, None)),
        at_parameters(problem.score),
    )
    return trainer, parameters


def best_of(task: FitTask, guide: Callable) -> tuple[Fit, Parameters]:
    """Return the best of several fits, and the guide's parameters, which then are its.

    Pyro stores parameters by name, so that a copy of the guide would continue with those
    of the last training: every training has a store of its own.
    """
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is not None:
        raise ValueError(
            "restarts begin with new parameters, and the guide has some: give a new one"
        )
    module = task.model if isinstance(task.model, torch.nn.Module) else torch.nn.Module()
    initial = copy.deepcopy(module.state_dict())
    fits = []
    for _ in range(task.options.restarts):
        with pyro.get_param_store().scope():
            fit, parameters = task.train_guide(_copied(guide))
            fits.append((fit, parameters.unconstrained_copies()))
        module.load_state_dict(initial)
    fit, copies = min(fits, key=lambda pair: pair[0].rank)
    parameters = Parameters.from_run(lambda: task.unweighted_loss(guide))
    parameters.load(copies)
    fit.guide = guide
    return fit, parameters


def _copied(guide: Any) -> Any:
    """Return a copy of an uncalled guide; both keep the model, which Pyro's copies lose."""
    parts = list(guide.modules()) if isinstance(guide, torch.nn.Module) else []
    models: list[Any] = [getattr(part, "_model", None) for part in parts]
    new = copy.deepcopy(guide)
    copies = list(new.modules()) if parts else []
    for part, copied, model in zip(parts, copies, models, strict=True):
        if isinstance(part, AutoGuide):
            part._model = copied._model = model
    return new
