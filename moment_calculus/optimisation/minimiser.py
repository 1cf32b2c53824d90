"""Newton's method and L-BFGS as trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.optimisation.lbfgs import lbfgs
from moment_calculus.optimisation.newton import newton
from moment_calculus.optimisation.outcome import Course, Outcome
from moment_calculus.optimisation.progress import Bar
from moment_calculus.optimisation.rounds import Objective
from moment_calculus.optimisation.saddle import beside

METHODS = {"newton": newton, "lbfgs": lbfgs}


BY_ADAM = "train by method='adam', or use an objective without them"


def check_deterministic(one: float, other: float, remedy: str = BY_ADAM) -> None:
    """Refuse a loss that is another one when it is evaluated again.

    Args:
        one: the loss.
        other: the loss with other random numbers.
        remedy: what to do about it.

    Raises:
        ValueError: naming both.
    """
    if one != other:
        raise ValueError(
            f"the loss is not deterministic: {one} and {other} with different random numbers. "
            "Sites in sample_sites, subsampling plates and draws of the model itself make it "
            f"noise: {remedy}"
        )


@dataclass
class Minimiser:
    """A deterministic method; every stretch begins a new round of it.

    Args:
        objective: the loss.
        outcome: where it is.
        method: its name.
        tolerance: as of the method.
        values_at: parameters by name, of a flat vector.
        terms_at: what each site contributes to the ELBO, likewise.
        score_at: held-out log-likelihood, likewise.
    """

    objective: Objective
    outcome: Outcome
    method: str
    tolerance: float | None
    values_at: Callable[[np.ndarray], dict[str, Any]]
    terms_at: Callable[[np.ndarray], dict[str, float]]
    score_at: Callable[[np.ndarray], float]

    def advance(self, course: Course, steps: int, bar: Bar) -> None:
        """Go on to a number of steps."""
        step = METHODS[self.method]
        report = lambda loss: bar.report(1, loss)  # noqa: E731
        step(self.objective, self.outcome, steps, self.tolerance, report)
        if course.steps >= steps and not course.converged:
            course.reason = ""

    def step_off(self) -> bool:
        """Step off a saddle, if it stopped at one; Newton's method has looked at the curvature."""
        at = self.outcome
        lower = None if self.method == "newton" else beside(self.objective, at.place, at.loss)
        if lower is None:
            return False
        at.place, loss = lower
        at.losses.append(loss)
        at.steps += 1
        return True

    def values(self) -> dict[str, Any]:
        """The parameters by name."""
        return self.values_at(self.outcome.place)

    def terms(self) -> dict[str, float]:
        """What each site contributes to the ELBO."""
        return self.terms_at(self.outcome.place)

    def score(self) -> float:
        """Held-out log-likelihood."""
        return self.score_at(self.outcome.place)

    def keep(self) -> np.ndarray:
        """The parameters."""
        return self.outcome.place.copy()

    def revert(self, kept: np.ndarray) -> None:
        """Return to parameters."""
        self.outcome.place = kept

    def state(self) -> Any:
        """All that the next steps depend on, as every stretch begins a new round."""
        return {"place": self.outcome.place, "begun": self.outcome.begun}

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self.outcome.place, self.outcome.begun = np.asarray(state["place"]), state["begun"]

    def finish(self, course: Course) -> None:
        """Nothing is left to be written down."""
