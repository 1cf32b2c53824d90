"""Several trainings, of which the best is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pyro
import torch
from pyro.infer.autoguide import AutoGuide

from moment_calculus.optimisation.outcome import Fit
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.fitting.task import Task


def best_of(task: Task, guide: Callable, restarts: int) -> Fit:
    """The best of several trainings, each with parameters of its own.

    Pyro stores parameters by name, so that a copy of the guide would go on with those of the last
    one: every training has a store of its own.

    Args:
        task: trains a guide.
        guide: the guide, which gets the best parameters.
        restarts: how many trainings.

    Raises:
        ValueError: if the guide has parameters already.
    """
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is not None:
        raise ValueError(
            "restarts begin with new parameters, and the guide has some: give a new one"
        )
    module = task.model if isinstance(task.model, torch.nn.Module) else torch.nn.Module()
    initial = copy.deepcopy(module.state_dict())
    found = []
    for _ in range(restarts):
        with pyro.get_param_store().scope():
            fit, parameters = task.trained(_copied(guide))
            found.append((fit, parameters.copies()))
        module.load_state_dict(initial)
    fit, copies = min(found, key=lambda pair: pair[0].rank)
    Parameters.met(lambda: task.first_loss(guide)).set(copies)
    fit.guide = guide
    return fit


def _copied(guide: Any) -> Any:
    """A copy of a guide that has not met data.

    Pyro's forget their model when they are copied, the original as well as the copy.
    """
    parts = list(guide.modules()) if isinstance(guide, torch.nn.Module) else []
    models: list[Any] = [getattr(part, "_model", None) for part in parts]
    new = copy.deepcopy(guide)
    copies = list(new.modules()) if parts else []
    for part, copied, model in zip(parts, copies, models, strict=True):
        if isinstance(part, AutoGuide):
            part._model = copied._model = model
    return new
