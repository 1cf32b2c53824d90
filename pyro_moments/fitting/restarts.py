"""Several trainings, of which the best is kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pyro
import torch

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
            fit, parameters = task.trained(copy.deepcopy(guide))
            found.append((fit, parameters.copies()))
        module.load_state_dict(initial)
    fit, copies = min(found, key=lambda pair: _comparable(pair[0].loss))
    Parameters.met(lambda: task.first_loss(guide)).set(copies)
    fit.guide = guide
    return fit


def _comparable(loss: float) -> float:
    return math.inf if math.isnan(loss) else loss
