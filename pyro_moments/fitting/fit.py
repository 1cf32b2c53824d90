"""Train a guide to convergence with the function ``fit``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from os import PathLike
from typing import Any

import torch
from pyro.optim import PyroOptim

from moment_calculus.hosts.docstrings import FIT_ARGUMENTS, FIT_ERRORS, documented
from moment_calculus.objectives.by_draws import warn_if_off
from moment_calculus.optimisation.batches import arguments_of, first_of
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.optimisation.progress import last_line
from moment_calculus.optimisation.training import Progress
from pyro_moments.fitting.by_draws import loss_by_draws
from pyro_moments.fitting.precision import double_precision, doubled
from pyro_moments.fitting.problem import GlobalRandomState
from pyro_moments.fitting.streaming import streaming
from pyro_moments.fitting.task import Task, best_of
from pyro_moments.objectives.elbo import DeterministicELBO


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
    by_draws: bool = True,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO, starting from its current parameters.

    Pyro stores parameters by name: a second guide of the same class continues with those of the
    first, unless ``pyro.clear_param_store()`` is called in between.

    {arguments}
        scheduler: makes a learning-rate schedule of torch from the optimiser; the schedule takes
            a step after every step of the optimiser.
        **named: arguments of model and guide by name.

    Returns:
        The guide, whose parameters are trained in place, the losses and why it stopped.

    {errors}

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    options = Options.among(locals())
    clock = time.perf_counter()
    with double_precision() if float64 else contextlib.nullcontext():
        convert = doubled if float64 else lambda part: part
        source = options.source(convert(data), convert(named), _rows, convert, GlobalRandomState())
        told = model if prior is None else streaming(model, prior, *first_of(source))
        task = Task(
            options=options,
            objective=objective or DeterministicELBO(),
            model=model,
            told=told,
            source=source,
            held_out=None if held_out is None else convert(arguments_of(held_out)),
            scheduler=scheduler,
            earlier=None if prior is None else prior.params,
            clock=clock,
            float64=float64,
        )
        result = task.trained(guide)[0] if restarts == 1 else best_of(task, guide, restarts)
        if by_draws:
            problem = task.problem(result.guide, warms_up=False)
            result.by_draws = loss_by_draws(problem, source, options, result, _rows)
            last_line(str(result.by_draws), progress_bar)
            warn_if_off(result.by_draws)
        return result


def _rows(data: Any, indices: Any) -> Any:
    """Return rows of tensors, also inside tuples and dictionaries."""
    return torch.utils._pytree.tree_map(lambda part: part[indices], data)
