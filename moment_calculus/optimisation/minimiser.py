"""The trainer of ``fit`` that minimises a deterministic loss by Newton's method or L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.optimisation.lbfgs import lbfgs
from moment_calculus.optimisation.newton import newton
from moment_calculus.optimisation.outcome import Course, Outcome
from moment_calculus.optimisation.progress import Bar
from moment_calculus.optimisation.rounds import DeterministicLoss
from moment_calculus.optimisation.saddle import step_off_saddle

METHODS = {"newton": newton, "lbfgs": lbfgs}


BY_ADAM = "train by method='adam', or use an objective without them"


def check_deterministic(one: float, other: float, remedy: str = BY_ADAM) -> None:
    """Raise ValueError if a loss (``one``) is another one with other random numbers (``other``)."""
    if one != other:
        raise ValueError(
            f"the loss is not deterministic: {one} and {other} with different random numbers. "
            "Sites in sample_sites, subsampling plates and draws of the model itself make it "
            f"noise: {remedy}"
        )


@dataclass
class Minimiser:
    """A :class:`.Trainer` by a deterministic method; every stretch begins a new round of it."""

    objective: DeterministicLoss
    outcome: Outcome  # where the training is
    method: str  # a key of METHODS
    tolerance: float | None
    values_at: Callable[[np.ndarray], dict[str, Any]]  # parameters by name, of a flat vector
    terms_at: Callable[[np.ndarray], dict[str, float]]  # what each site contributes to the ELBO
    score_at: Callable[[np.ndarray], float]  # held-out log-likelihood

    def advance(self, course: Course, steps: int, bar: Bar) -> None:
        """Go on to a number of steps."""
        step = METHODS[self.method]
        report = lambda loss: bar.report(1, loss)  # noqa: E731
        step(self.objective, self.outcome, steps, self.tolerance, report)
        if course.steps >= steps and not course.converged:
            course.reason = ""

    def step_off(self) -> bool:
        """Step off a saddle if L-BFGS stopped at one; tell whether it did."""
        at = self.outcome
        # Newton's method has looked at the curvature itself.
        lower = (
            None if self.method == "newton" else step_off_saddle(self.objective, at.place, at.loss)
        )
        if lower is None:
            return False
        at.place, loss = lower
        at.losses.append(loss)
        at.steps += 1
        return True

    def values(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return self.values_at(self.outcome.place)

    def terms(self) -> dict[str, float]:
        """Return what each site contributes to the ELBO."""
        return self.terms_at(self.outcome.place)

    def score(self) -> float:
        """Return the held-out log-likelihood."""
        return self.score_at(self.outcome.place)

    def keep(self) -> np.ndarray:
        """Return a copy of the parameters."""
        return self.outcome.place.copy()

    def revert(self, kept: np.ndarray) -> None:
        """Return to parameters."""
        self.outcome.place = kept

    def state(self) -> Any:
        """Return all that the next steps depend on."""
        return {"place": self.outcome.place, "begun": self.outcome.full_start}

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self.outcome.place, self.outcome.full_start = np.asarray(state["place"]), state["begun"]

    def finish(self, course: Course) -> None:
        """Do nothing: all losses are known."""
