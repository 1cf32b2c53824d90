"""Train by the steps of an optimiser of torch or Pyro."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.optim import PyroOptim
from pyro.optim.lr_scheduler import PyroLRScheduler

from moment_inference.objectives import starts
from moment_inference.optimisation import INVALID, Course, ProgressBar, batches, minimiser
from pyro_moments._host import tree_map
from pyro_moments.fitting.flat_loss import flat_loss, multiply_start, two_values
from pyro_moments.fitting.parameters import Parameters, as_array, unconstrained_parameters
from pyro_moments.fitting.problem import RANDOM, Problem


class TorchOptimiser:
    """An optimiser of torch with its parameters and schedule, made when the first appear."""

    def __init__(
        self, optimiser: Callable, scheduler: Callable | None, rate: Callable | None
    ) -> None:
        # The rate is a function of the number of earlier steps; None: the optimiser's own
        # rate.
        self.make, self.make_scheduler, self.rate = optimiser, scheduler, rate
        self.optimiser: Any = None
        self.scheduler: Any = None
        self.parameters = Parameters({}, {})  # that steps have used
        self._added: set[int] = set()

    def keep_parameters(self, capture: Any) -> dict[str, torch.Tensor]:
        """Keep the parameters in the trace of a step, if any is new, and return them."""
        leaves = unconstrained_parameters(capture)
        if any(self.parameters.leaves.get(name) is not leaf for name, leaf in leaves.items()):
            self.parameters = Parameters.from_trace(capture)
        return leaves

    def add_parameters(self, leaves: dict[str, torch.Tensor]) -> None:
        """Add the parameters that are new to the optimiser."""
        new = [leaf for leaf in leaves.values() if id(leaf) not in self._added]
        if not new:
            return
        self._added |= {id(leaf) for leaf in new}
        if self.optimiser is not None:
            self.optimiser.add_param_group({"params": new})
            return
        self.optimiser = self.make(new)
        if self.make_scheduler is not None:
            self.scheduler = self.make_scheduler(self.optimiser)

    def take(self, leaves: dict[str, torch.Tensor], step: int) -> None:
        """Take a step after a number of earlier ones, and delete the gradients."""
        self.add_parameters(leaves)
        if self.rate is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate(step)
        self.optimiser.step()
        if self.scheduler is not None:
            self.scheduler.step()
        for leaf in leaves.values():
            leaf.grad = None

    def state(self) -> Any:
        """Return the state of optimiser and schedule."""
        schedule = None if self.scheduler is None else self.scheduler.state_dict()
        return [self.optimiser.state_dict(), schedule]

    def restore(self, state: Any) -> None:
        """Continue from a state."""
        self.optimiser.load_state_dict(state[0])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state[1])


class PyroOptimiser(TorchOptimiser):
    """An optimiser of Pyro, possibly with a schedule, which takes a step as well."""

    def __init__(self, optimiser: PyroOptim) -> None:
        super().__init__(lambda leaves: optimiser, None, None)
        self.optimiser = optimiser

    def add_parameters(self, leaves: dict[str, torch.Tensor]) -> None:
        """Do nothing, because the optimiser gets the parameters with every step."""

    def take(self, leaves: dict[str, torch.Tensor], step: int) -> None:
        """Take a step, and delete the gradients."""
        self.optimiser([*leaves.values()])
        if isinstance(self.optimiser, PyroLRScheduler):
            self.optimiser.step()
        for leaf in leaves.values():
            leaf.grad = None

    def state(self) -> Any:
        """Return the state of the optimisers of all parameters."""
        return self.optimiser.get_state()

    def restore(self, state: Any) -> None:
        """Continue from a state."""
        self.optimiser.set_state(state)


def first_loss(run: Callable[[], float]) -> float:
    """Return a loss without the host's warning that it is infinite: another start may be taken."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encountered")
        return run()


def has_finite_slope(loss: float, leaves: dict[str, torch.Tensor]) -> bool:
    """Return whether a loss and its slope are finite."""
    slopes = [as_array(leaf.grad) for leaf in leaves.values() if leaf.grad is not None]
    return starts.is_finite(loss, np.concatenate([np.zeros(0), *slopes]))


def finite_start(parameters: Parameters, loss: float, run: Callable[[], float]) -> float:
    """Set parameters to a start with a finite loss, and return it with its gradients set."""
    start, leaves = parameters.unconstrained_copies(), parameters.leaves

    def loss_at(factors: starts.Factors | None) -> float:
        parameters.load(start)
        if factors is not None:
            multiply_start(parameters, factors)
        for leaf in leaves.values():
            leaf.grad = None
        value = first_loss(run)
        return value if factors is None or has_finite_slope(value, leaves) else math.nan

    return loss_at(starts.finite_start(loss, loss_at))


class GradientTrainer:
    """Trains a problem by an optimiser."""

    def __init__(self, problem: Problem, steps: TorchOptimiser) -> None:
        self.problem, self.steps = problem, steps
        self._last: batches.Arguments | None = None

    def advance(self, course: Course, steps: int, bar: ProgressBar) -> None:
        """Train up to a number of steps, or until data or parameters end it."""
        while course.steps < steps:
            try:
                self._last = self.problem.source.arguments(course.steps)
            except batches.Exhausted as end:
                course.stop(False, str(end))
                return
            try:
                course.losses.append(self._step(self._last, course.steps))
            except ValueError:  # torch's distributions raise it for invalid parameters
                if self.steps.parameters.are_valid():
                    raise
                course.stop(False, INVALID)
                return
            course.steps += 1
            bar.report(1, course.loss)

    def _step(self, data: batches.Arguments, step: int) -> float:
        warm_up = self.problem.options.warm_up
        weight = None if warm_up is None else warm_up.weight(step)
        run = partial(self.problem.loss_and_grads, data, self.problem.source.size, weight)
        with poutine.trace(param_only=True) as capture:
            loss = run() if step else first_loss(run)
        if step == 0 and not has_finite_slope(loss, unconstrained_parameters(capture)):
            loss = finite_start(Parameters.from_trace(capture), loss, run)
        leaves = self.steps.keep_parameters(capture)
        if not leaves:
            raise ValueError("model and guide have no parameters: there is nothing to train")
        noise = self.problem.noise
        if noise is None or noise.profiled:
            self.steps.take(leaves, step)
            return loss
        leaves.pop(noise.name).grad = None
        self.steps.take(leaves, step)
        if (step + 1) % getattr(self.problem.source, "per_epoch", 1) == 0:
            noise.set_best(self.problem.program(batches.whole_arguments(self.problem.source)))
        return loss

    def leave_saddle(self) -> bool:
        """Leave a saddle of a deterministic loss; return whether it was one."""
        source, objective = self.problem.source, self.problem.trained_objective
        if type(source) is not batches.AllData or not getattr(objective, "in_closed_form", False):
            return False
        program = self.problem.program(source.arguments(0))
        run = partial(program.loss, objective)
        parameters = Parameters.from_run(run)
        vector, (loss, second) = parameters.vector(), two_values(run)
        flat = flat_loss(objective, program, parameters)
        lower = minimiser.step_off_saddle(flat, vector, loss) if loss == second else None
        parameters.set_vector(vector if lower is None else lower[0])
        return lower is not None

    def finish(self, course: Course) -> None:
        """Append the last loss if every step uses all data."""
        if type(self.problem.source) is batches.AllData and self.steps.parameters.are_valid():
            course.losses.append(self.problem.loss(self.problem.source.arguments(course.steps)))

    def values(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return self.problem.with_noise(self.steps.parameters).constrained_copies()

    def terms(self) -> dict[str, float]:
        """Return the terms of the ELBO by site, on the last mini-batch."""
        if self._last is None:
            return {}
        self.problem.with_noise(self.steps.parameters)
        return self.problem.terms(self._last, self.problem.source.size)

    def held_out_log_likelihood(self) -> float:
        """Return the held-out log-likelihood."""
        self.problem.with_noise(self.steps.parameters)
        return self.problem.score()

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Return copies of the unconstrained parameters."""
        return self.steps.parameters.unconstrained_copies()

    def load_snapshot(self, snapshot: dict[str, torch.Tensor]) -> None:
        """Return to parameters that :meth:`snapshot` has copied."""
        self.steps.parameters.load(snapshot)

    def state(self) -> Any:
        """Return all that the next steps depend on."""
        return {
            "parameters": self.steps.parameters.unconstrained_copies(),
            "optimiser": self.steps.state(),
            "random": RANDOM.get(),
            "source": self.problem.source.state(),
        }

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        with poutine.trace(param_only=True) as capture:
            self.problem.unweighted_loss()
        self.steps.keep_parameters(capture)
        self.steps.parameters.load(state["parameters"])
        self.steps.add_parameters(self.steps.parameters.leaves)
        self.steps.restore(_tensors(state["optimiser"]))
        self.problem.source.restore(state["source"])
        RANDOM.set(state["random"])


def _tensors(tree: Any) -> Any:
    """Return a tree with tensors in place of arrays."""

    def tensor(leaf: Any) -> Any:
        return torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf

    return tree_map(tensor, tree)
