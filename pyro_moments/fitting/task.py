"""Train any guide on the data and with the options of one call of ``fit``."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro.infer.autoguide import AutoGuide
from pyro.optim import PyroOptim

from moment_calculus.optimisation.batches import AllData, Arguments, LoaderBatches, first_arguments
from moment_calculus.optimisation.minimiser import Minimiser
from moment_calculus.optimisation.options import LEARNING_RATE, Options
from moment_calculus.optimisation.outcome import Course, Fit
from moment_calculus.optimisation.rounds import cached, initial_outcome
from moment_calculus.optimisation.storage.trainings import Checkpoint, data_digest
from moment_calculus.optimisation.training import Trainer, train
from moment_calculus.optimisation.weighting import PlateScaling
from pyro_moments.fitting.flat_loss import flat_loss
from pyro_moments.fitting.gradients import GradientTrainer, PyroOptimiser, TorchOptimiser
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.fitting.precision import convert_parameters
from pyro_moments.fitting.problem import Problem
from pyro_moments.fitting.storing import joint_density, stored_training
from pyro_moments.sites.traces import bind


@dataclass(frozen=True, kw_only=True)
class FitTask:
    """What one call of ``fit`` does with a guide."""

    options: Options
    objective: Any
    model: Callable  # the user's
    streamed_model: Callable  # the same, whose prior may be the posterior of an earlier fit
    source: AllData  # of the data
    held_out: Arguments | None
    scheduler: Callable | None  # makes a schedule of torch from the optimiser
    prior_params: dict[str, torch.Tensor] | None  # parameters of the earlier fit
    clock: float  # time when the fit began
    float64: bool

    def train_guide(self, guide: Callable) -> tuple[Fit, Parameters]:
        """Train a guide, and return the fit and the parameters."""
        bind(guide, self.streamed_model)
        problem = self.problem(guide, warms_up=self.options.warm_up is not None)
        if self.float64:
            convert_parameters(lambda: problem.first_loss(first_arguments(self.source)))
        return self._by_gradients(problem) if self._is_adam else self._by_minimising(problem)

    def problem(self, guide: Callable, *, warms_up: bool) -> Problem:
        """Return the problem of training a guide."""
        batches = type(self.source) is not AllData
        rows = self.options.rows_of(self.source) if batches else None
        plates = PlateScaling(rows, self.options.plate) if batches else None
        return Problem(self.objective, self.streamed_model, guide, plates, warms_up, self.held_out)

    def first_loss(self, guide: Callable) -> Any:
        """Return a loss of a guide, which makes the guide's parameters."""
        bind(guide, self.streamed_model)
        args, named = first_arguments(self.source)
        return self.objective.differentiable_loss(self.streamed_model, guide, *args, **named)

    @property
    def _is_adam(self) -> bool:
        return self.options.method == "adam"

    @property
    def _is_double(self) -> bool:
        return torch.get_default_dtype() is torch.float64

    def _by_gradients(self, problem: Problem) -> tuple[Fit, Parameters]:
        steps = _steps(self.options, self.scheduler)
        trainer = GradientTrainer(problem, self.source, self.options.warm_up, steps)
        fit = self._fitted(problem, trainer, Course(), lambda kept: kept)
        return fit, trainer.parameters

    def _by_minimising(self, problem: Problem) -> tuple[Fit, Parameters]:
        trainer, parameters = _minimiser(self.options, problem, self.source)
        fit = self._fitted(problem, trainer, trainer.outcome, parameters.copies_at_vector)
        return fit, parameters

    def _fitted(
        self,
        problem: Problem,
        trainer: Trainer,
        course: Course,
        parameters: Callable[[Any], dict[str, Any]],
    ) -> Fit:
        prepared, plan = time.perf_counter(), functools.partial(self.options.plan, self.source)
        if self.options.checkpoint is None:
            train(trainer, course, plan())
        else:
            self._checkpoint(problem).train(trainer, course, plan, parameters)
        params = trainer.values()  # this also moves the parameters of a deterministic method there
        return course.fit(problem.guide, params, self.clock, prepared)

    def _checkpoint(self, problem: Problem) -> Checkpoint:
        if isinstance(self.source, LoaderBatches):
            self.source.check_resumable(shuffles_globally=True)
        digest = _digest((self.source.args, self.source.named))
        settings = self.options.settings(digest, self.objective, self._is_double)
        if self.prior_params is not None:
            settings["prior"] = _digest(self.prior_params)
        whole = not isinstance(self.source, LoaderBatches)  # a loader may begin with other rows
        data, named = first_arguments(self.source)
        settings["density"] = joint_density(self.model, data, named, observed=whole)
        stored = stored_training(self.model, problem.guide, *first_arguments(self.source))
        return Checkpoint(Path(self.options.checkpoint), stored, settings)


def _digest(data: Any) -> str:
    leaves = torch.utils._pytree.tree_leaves(data)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
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
            return read()

        return at

    trainer = Minimiser(
        objective,
        initial_outcome(objective, parameters.vector()),
        options.method,
        options.tolerance,
        at_parameters(parameters.detached),
        at_parameters(lambda: problem.terms(data, None)),
        at_parameters(problem.score),
    )
    return trainer, parameters


def best_of(task: FitTask, guide: Callable, restarts: int) -> Fit:
    """Return the best of several fits, whose parameters the guide then has.

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
    for _ in range(restarts):
        with pyro.get_param_store().scope():
            fit, parameters = task.train_guide(_copied(guide))
            fits.append((fit, parameters.copies()))
        module.load_state_dict(initial)
    fit, copies = min(fits, key=lambda pair: pair[0].rank)
    Parameters.from_run(lambda: task.first_loss(guide)).load(copies)
    fit.guide = guide
    return fit


def _copied(guide: Any) -> Any:
    """Return a copy of a guide that has not been called.

    Guides of Pyro lose their model when they are copied, the original as well as the
    copy.
    """
    parts = list(guide.modules()) if isinstance(guide, torch.nn.Module) else []
    models: list[Any] = [getattr(part, "_model", None) for part in parts]
    new = copy.deepcopy(guide)
    copies = list(new.modules()) if parts else []
    for part, copied, model in zip(parts, copies, models, strict=True):
        if isinstance(part, AutoGuide):
            part._model = copied._model = model
    return new
