"""One verb that trains a guide."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro.optim import PyroOptim

from moment_calculus.hosts.checkpoints import Checkpoint
from moment_calculus.hosts.docstrings import FIT_ARGUMENTS, FIT_ERRORS, documented
from moment_calculus.hosts.mini_batches import PlateScaling
from moment_calculus.hosts.stored import data_digest
from moment_calculus.optimisation.batches import Loaded, Whole, arguments_of, first_of
from moment_calculus.optimisation.minimiser import Minimiser
from moment_calculus.optimisation.options import LEARNING_RATE, Options
from moment_calculus.optimisation.outcome import Course, Fit
from moment_calculus.optimisation.rounds import started
from moment_calculus.optimisation.training import Progress, Trainer, train
from pyro_moments.fitting.gradients import Gradients, PyroSteps, Steps
from pyro_moments.fitting.objective import flat_loss
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.fitting.precision import double_precision, doubled, make_doubles
from pyro_moments.fitting.problem import GlobalRandomState, Problem
from pyro_moments.fitting.storing import stored_training
from pyro_moments.fitting.streaming import streaming
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.sites.binding import bind


@documented("Pyro", arguments=FIT_ARGUMENTS, errors=FIT_ERRORS)
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
    held_out: Any = None,
    patience: int = 10,
    every: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress_bar: bool | None = None,
    checkpoint: str | PathLike[str] | None = None,
    restarts: int = 1,
    prior: Fit | None = None,
    float64: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO, from where its parameters are.

    {arguments}
        scheduler: makes a learning-rate schedule of torch of the optimiser; it takes a step with
            every step.
        **named: arguments of model and guide by name.

    Returns:
        The guide, whose parameters are trained in place, the losses and why it stopped.

    {errors}

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    options = Options(
        method=method,
        steps=steps,
        tolerance=tolerance,
        learning_rate=learning_rate,
        optimiser=optimiser,
        batch_size=batch_size,
        epochs=epochs,
        rows=rows,
        plate=plate,
        kl_warm_up=kl_warm_up,
        held_out=held_out,
        patience=patience,
        every=every,
        callback=callback,
        progress_bar=progress_bar,
        checkpoint=checkpoint,
        restarts=restarts,
        seed=seed,
    )
    objective = objective or DeterministicELBO()
    with double_precision() if float64 else contextlib.nullcontext():
        clock = time.perf_counter()
        convert = doubled if float64 else lambda batch: batch
        source = options.source(convert(data), convert(named), _rows, convert, GlobalRandomState())
        held_out = None if held_out is None else convert(arguments_of(held_out))
        plates = None
        if type(source) is not Whole:
            plates = PlateScaling(options.rows_of(source), options.plate)
        warms_up = options.warm_up is not None
        told = model if prior is None else streaming(model, prior, *first_of(source))

        def trained(guide: Callable) -> tuple[Fit, Parameters]:
            bind(guide, told)
            problem = Problem(objective, told, guide, plates, warms_up, held_out)
            if float64:
                make_doubles(lambda: problem.first_loss(first_of(source)))
            checkpoint = None if options.checkpoint is None else of_file(problem)
            return _fitted(options, problem, source, scheduler, clock, checkpoint)

        def of_file(problem: Problem) -> Checkpoint:
            earlier = {} if prior is None else prior.params
            return _checkpoint(options, problem, source, model, earlier)

        if restarts == 1:
            return trained(guide)[0]
        first = lambda: trained_loss(objective, told, guide, first_of(source))  # noqa: E731
        return _best(trained, model, guide, restarts, first)


def trained_loss(objective: Any, model: Callable, guide: Callable, data: Any) -> Any:
    """A loss that makes the parameters of a guide.

    Args:
        objective: an ELBO.
        model: the model.
        guide: the guide.
        data: arguments of both.
    """
    bind(guide, model)
    args, named = data
    return objective.differentiable_loss(model, guide, *args, **named)


def _fitted(
    options: Options,
    problem: Problem,
    source: Whole,
    scheduler: Callable | None,
    clock: float,
    checkpoint: Checkpoint | None,
) -> tuple[Fit, Parameters]:
    trainer: Trainer
    course: Course
    if options.method == "adam":
        trainer = gradients = Gradients(
            problem, source, options.warm_up, _steps(options, scheduler)
        )
        course, named = Course(), lambda kept: kept
        parameters = lambda: gradients.parameters  # noqa: E731
    else:
        trainer, met = _minimiser(options, problem, source)
        course, named = trainer.outcome, met.copies_at
        parameters = lambda: met  # noqa: E731
    prepared, plan = time.perf_counter(), functools.partial(options.plan, source)
    if checkpoint is None:
        train(trainer, course, plan())
    else:
        checkpoint.train(trainer, course, plan, named)
    params = trainer.values()  # also moves a deterministic method's to where it is
    return course.fit(problem.guide, params, clock, prepared), parameters()


def _checkpoint(
    options: Options,
    problem: Problem,
    source: Whole,
    model: Callable,
    earlier: dict[str, torch.Tensor],
) -> Checkpoint:
    if isinstance(source, Loaded):
        source.check_resumable(shuffles_globally=True)
    leaves = torch.utils._pytree.tree_leaves((source.args, source.named))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    digest = data_digest(tensor.detach().cpu().numpy() for tensor in tensors)
    double = torch.get_default_dtype() is torch.float64
    settings = options.settings(digest, problem.objective, double)
    if earlier:
        settings["prior"] = data_digest(value.cpu().numpy() for value in earlier.values())
    stored = stored_training(model, problem.guide, *first_of(source))
    return Checkpoint(Path(options.checkpoint), stored, settings)


def _steps(options: Options, scheduler: Callable | None) -> Steps:
    if isinstance(options.optimiser, PyroOptim):
        if scheduler is not None:
            raise ValueError("a schedule of torch goes with an optimiser of torch, not of Pyro")
        return PyroSteps(options.optimiser)
    rate = options.learning_rate
    if callable(rate):
        return Steps(functools.partial(torch.optim.Adam, lr=rate(0)), scheduler, rate)
    adam = functools.partial(torch.optim.Adam, lr=LEARNING_RATE if rate is None else rate)
    return Steps(options.optimiser or adam, scheduler, None)


def _minimiser(options: Options, problem: Problem, source: Whole) -> tuple[Minimiser, Parameters]:
    data = source.arguments(0)
    loss = flat_loss(problem.objective, problem.model, problem.guide, *data)
    loss.check_deterministic()
    objective, parameters = loss.objective(), loss.parameters

    def moved(read: Callable[[], Any]) -> Callable[[Any], Any]:
        def at(place: Any) -> Any:
            parameters.move(place)
            return read()

        return at

    trainer = Minimiser(
        objective,
        started(objective, parameters.place()),
        options.method,
        options.tolerance,
        moved(parameters.detached),
        moved(lambda: problem.terms(data, None)),
        moved(problem.score),
    )
    return trainer, parameters


def _best(
    trained: Callable[[Callable], tuple[Fit, Parameters]],
    model: Callable,
    guide: Callable,
    restarts: int,
    first_loss: Callable[[], Any],
) -> Fit:
    """The best of several trainings, each with parameters of its own.

    Pyro stores parameters by name, so that a copy of the guide would go on with those of the last
    one: every training has a store of its own.
    """
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is not None:
        raise ValueError(
            "restarts begin with new parameters, and the guide has some: give a new one"
        )
    module = model if isinstance(model, torch.nn.Module) else torch.nn.Module()
    initial = copy.deepcopy(module.state_dict())
    found = []
    for _ in range(restarts):
        with pyro.get_param_store().scope():
            fit, parameters = trained(copy.deepcopy(guide))
            found.append((fit, parameters.copies()))
        module.load_state_dict(initial)
    fit, copies = min(found, key=lambda pair: _comparable(pair[0].loss))
    Parameters.met(first_loss).set(copies)
    fit.guide = guide
    return fit


def _comparable(loss: float) -> float:
    return math.inf if math.isnan(loss) else loss


def _rows(data: Any, indices: Any) -> Any:
    """Rows of tensors, also inside tuples and dictionaries."""
    return torch.utils._pytree.tree_map(lambda part: part[indices], data)
