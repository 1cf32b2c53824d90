"""Steps of an optimiser of torch or Pyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.optim import PyroOptim
from pyro.optim.lr_scheduler import PyroLRScheduler

from moment_calculus.optimisation.batches import Arguments, Exhausted, Whole, first_of
from moment_calculus.optimisation.outcome import INVALID, Course
from moment_calculus.optimisation.progress import Bar
from moment_calculus.optimisation.saddle import beside
from moment_calculus.optimisation.warm_up import WarmUp
from pyro_moments.fitting.objective import flat_loss
from pyro_moments.fitting.parameters import Parameters, unconstrained
from pyro_moments.fitting.problem import GlobalRandomState, Problem


class Steps:
    """An optimiser of torch, made when the first parameters are met, with its schedule.

    Args:
        optimiser: makes it of a list of parameters.
        scheduler: makes a schedule of torch of it; None for none.
        rate: learning rate by the number of steps made before; None for the optimiser's own.
    """

    def __init__(
        self, optimiser: Callable, scheduler: Callable | None, rate: Callable | None
    ) -> None:
        self.make, self.make_scheduler, self.rate = optimiser, scheduler, rate
        self.optimiser: Any = None
        self.scheduler: Any = None
        self._known: set[int] = set()

    def meet(self, leaves: dict[str, torch.Tensor]) -> None:
        """Take parameters that were not met before.

        Args:
            leaves: by name.
        """
        new = [leaf for leaf in leaves.values() if id(leaf) not in self._known]
        if not new:
            return
        self._known |= {id(leaf) for leaf in new}
        if self.optimiser is not None:
            self.optimiser.add_param_group({"params": new})
            return
        self.optimiser = self.make(new)
        if self.make_scheduler is not None:
            self.scheduler = self.make_scheduler(self.optimiser)

    def take(self, leaves: dict[str, torch.Tensor], step: int) -> None:
        """Take a step, and forget the gradients.

        Args:
            leaves: the parameters by name.
            step: number of steps made before.
        """
        self.meet(leaves)
        if self.rate is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate(step)
        self.optimiser.step()
        if self.scheduler is not None:
            self.scheduler.step()
        for leaf in leaves.values():
            leaf.grad = None

    def state(self) -> Any:
        """Of optimiser and schedule."""
        schedule = None if self.scheduler is None else self.scheduler.state_dict()
        return [self.optimiser.state_dict(), schedule]

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self.optimiser.load_state_dict(state[0])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state[1])


class PyroSteps(Steps):
    """An optimiser of Pyro, possibly with a schedule, which takes a step as well.

    Args:
        optimiser: of ``pyro.optim``.
    """

    def __init__(self, optimiser: PyroOptim) -> None:
        super().__init__(lambda leaves: optimiser, None, None)
        self.optimiser = optimiser

    def meet(self, leaves: dict[str, torch.Tensor]) -> None:
        """Nothing: it takes the parameters with every step."""

    def take(self, leaves: dict[str, torch.Tensor], step: int) -> None:
        """Take a step, and forget the gradients."""
        self.optimiser([*leaves.values()])
        if isinstance(self.optimiser, PyroLRScheduler):
            self.optimiser.step()
        for leaf in leaves.values():
            leaf.grad = None

    def state(self) -> Any:
        """Of the optimisers of all parameters."""
        return self.optimiser.get_state()

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self.optimiser.set_state(state)


class Gradients:
    """Trains by an optimiser.

    Args:
        problem: what is trained.
        source: of the data.
        warm_up: of the KL divergence; None for its full weight.
        steps: the optimiser.
    """

    def __init__(
        self, problem: Problem, source: Whole, warm_up: WarmUp | None, steps: Steps
    ) -> None:
        self.problem, self.source, self.warm_up, self.steps = problem, source, warm_up, steps
        self.parameters = Parameters({}, {})
        self._last: Arguments | None = None

    def advance(self, course: Course, steps: int, bar: Bar) -> None:
        """Go on to a number of steps."""
        while course.steps < steps:
            try:
                self._last = self.source.arguments(course.steps)
            except Exhausted as end:
                course.stop(False, str(end))
                return
            try:
                course.losses.append(self._step(self._last, course.steps))
            except ValueError:  # torch's distributions refuse such parameters
                if self.parameters.are_valid():
                    raise
                course.stop(False, INVALID)
                return
            course.steps += 1
            bar.report(1, course.loss)

    def _step(self, data: Arguments, step: int) -> float:
        weight = None if self.warm_up is None else self.warm_up.weight(step)
        with poutine.trace(param_only=True) as capture:
            loss = self.problem.loss_and_grads(data, self.source.size, weight)
        leaves = unconstrained(capture)
        if not leaves:
            raise ValueError("model and guide have no parameters: there is nothing to train")
        if any(self.parameters.leaves.get(name) is not leaf for name, leaf in leaves.items()):
            self.parameters = Parameters.of(capture)
        self.steps.take(leaves, step)
        return loss

    def step_off(self) -> bool:
        """Step off a saddle of a deterministic loss of all data."""
        problem = self.problem
        if type(self.source) is not Whole or not getattr(
            problem.objective, "in_closed_form", False
        ):
            return False
        data = self.source.arguments(0)
        flat = flat_loss(problem.objective, problem.model, problem.guide, *data)
        place, (loss, again) = flat.parameters.place(), flat.twice()
        lower = beside(flat.objective(), place, loss) if loss == again else None
        flat.parameters.move(place if lower is None else lower[0])
        return lower is not None

    def finish(self, course: Course) -> None:
        """Write down the last loss, of all data."""
        if type(self.source) is Whole and self.parameters.are_valid():
            course.losses.append(self.problem.loss(self.source.arguments(course.steps)))

    def values(self) -> dict[str, Any]:
        """The parameters by name."""
        return self.parameters.detached()

    def terms(self) -> dict[str, float]:
        """What each site contributes to the ELBO, on the last mini-batch."""
        if self._last is None:
            return {}
        return self.problem.terms(self._last, self.source.size)

    def score(self) -> float:
        """Held-out log-likelihood."""
        return self.problem.score()

    def keep(self) -> dict[str, torch.Tensor]:
        """The unconstrained parameters."""
        return self.parameters.copies()

    def revert(self, kept: dict[str, torch.Tensor]) -> None:
        """Return to parameters."""
        self.parameters.set(kept)

    def state(self) -> Any:
        """All that the next steps depend on."""
        return {
            "parameters": self.parameters.copies(),
            "optimiser": self.steps.state(),
            "random": GlobalRandomState().get(),
            "source": self.source.state(),
        }

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        first = first_of(self.source)
        self.parameters = Parameters.met(lambda: self.problem.first_loss(first))
        self.parameters.set(state["parameters"])
        self.steps.meet(self.parameters.leaves)
        self.steps.restore(_tensors(state["optimiser"]))
        self.source.restore(state["source"])
        GlobalRandomState().set(state["random"])


def _tensors(tree: Any) -> Any:
    """A tree with tensors in place of arrays."""

    def tensor(leaf: Any) -> Any:
        return torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf

    return torch.utils._pytree.tree_map(tensor, tree)
