"""The loop around all methods: stretches of steps, and what is looked at between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from moment_calculus.optimisation.outcome import RECENT, Course
from moment_calculus.optimisation.progress import Bar

SADDLES = 5  # that a training steps off
STALL = 1e-5  # relative change of the mean loss of a hundred steps, from which Adam stands still


class Trainer(Protocol):
    """A method with the parameters that it trains."""

    def advance(self, course: Course, steps: int, bar: Bar) -> None:
        """Go on to a number of steps, writing losses and the reason to stop into the course."""

    def step_off(self) -> bool:
        """Step off a saddle; say whether there was one."""

    def values(self) -> dict[str, Any]:
        """The parameters by name, in the host's conventions."""

    def terms(self) -> dict[str, float]:
        """What each site contributes to the ELBO; empty if the objective does not tell."""

    def score(self) -> float:
        """Held-out log-likelihood."""

    def keep(self) -> Any:
        """The parameters, for :meth:`revert`."""

    def revert(self, kept: Any) -> None:
        """Return to parameters."""

    def state(self) -> Any:
        """All that the next steps depend on, as dictionaries, lists and arrays."""

    def restore(self, state: Any) -> None:
        """Go on from a state."""

    def finish(self, course: Course) -> None:
        """Write down the last loss, if it is known only now."""


@dataclass(frozen=True)
class Progress:
    """What a callback sees of a training.

    Args:
        course: its losses, steps and held-out log-likelihoods so far.
        trainer: for what is computed only if asked for.
    """

    course: Course
    trainer: Trainer

    @property
    def step(self) -> int:
        """Number of steps made."""
        return self.course.steps

    @property
    def loss(self) -> float:
        """The last loss."""
        return self.course.loss

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name, in the host's conventions."""
        return self.trainer.values()

    @property
    def terms(self) -> dict[str, float]:
        """What each site contributes to the ELBO; empty if the objective does not tell."""
        return self.trainer.terms()


@dataclass(frozen=True)
class Plan:
    """What is done between the stretches of a training.

    Args:
        steps: most that are made.
        every: steps of a stretch; None for a single one.
        tolerance: relative change of the mean loss from one stretch to the next at which it has
            converged; None if that is the method's own affair.
        patience: held-out evaluations without a rise after which it stops; None if none is held
            out.
        callback: told of the progress; it ends the training by returning True.
        write: stores course and trainer, with the best parameters so far.
        progress_bar: whether one is shown; None on a terminal only.
    """

    steps: int
    every: int | None = None
    tolerance: float | None = None
    patience: int | None = None
    callback: Callable[[Progress], Any] | None = None
    write: Callable[[Course, Any], None] | None = None
    progress_bar: bool | None = None


def train(trainer: Trainer, course: Course, plan: Plan, kept: Any = None) -> None:
    """Train until a reason to stop is found.

    Args:
        trainer: the method.
        course: of an earlier part of the same training, or new.
        plan: what is done between the stretches.
        kept: best parameters of an earlier part.
    """
    with Bar(plan.steps, course.steps, plan.progress_bar, trainer.terms) as bar:
        while not course.reason and course.steps < plan.steps:
            before = course.steps
            target = min(plan.steps, before + (plan.every or plan.steps))
            trainer.advance(course, target, bar)
            if course.losses and math.isnan(course.loss):
                course.stop(False, "the loss is not a number")
                break
            kept = _scored(trainer, course, plan, kept)
            _compared(course, plan, course.steps - before)
            _left(trainer, course, course.steps - before)
            asked = plan.callback is not None and plan.callback(Progress(course, trainer))
            if plan.write is not None:
                plan.write(course, kept)
            if asked and not course.reason:  # a later call goes on from the checkpoint
                course.reason = "stopped: the callback asked for it"
    if not course.reason:
        course.reason = f"ran {course.steps} steps"
    trainer.finish(course)
    if course.best is not None:
        trainer.revert(kept)


def _scored(trainer: Trainer, course: Course, plan: Plan, kept: Any) -> Any:
    """Look at the held-out data; return the best parameters."""
    if plan.patience is None:
        return kept
    score = trainer.score()
    course.held_out[course.steps] = score = -math.inf if math.isnan(score) else score
    if course.best is None or score > course.held_out[course.best]:
        course.best, kept = course.steps, trainer.keep()
    stale = sum(step > course.best for step in course.held_out)
    if stale >= plan.patience and not course.reason:
        course.reason = (
            f"stopped: the held-out log-likelihood did not rise in {stale} evaluations; "
            f"the parameters are those after {course.best} steps"
        )
    return kept


def _compared(course: Course, plan: Plan, taken: int) -> None:
    """Compare the mean losses of two stretches."""
    if plan.tolerance is None or len(course.losses) < 2 * taken or not taken:
        return
    before, now = np.reshape(course.losses[-2 * taken :], (2, taken)).mean(1)
    course.change = float(abs(now - before) / max(abs(now), np.finfo(float).tiny))
    if course.change <= plan.tolerance and not course.reason:
        course.stop(True, f"the mean loss of {taken} steps changed by {course.change:.1e}")


def _left(trainer: Trainer, course: Course, taken: int) -> None:
    """Go on beside a saddle, where the training has come to rest at one."""
    if not (course.converged or _has_stalled(course, taken)) or not trainer.step_off():
        return
    course.saddles += 1
    course.converged, course.reason = False, ""
    if course.saddles > SADDLES:
        course.stop(False, "stationary, not minimal: the curvature is negative along a direction")


def _has_stalled(course: Course, taken: int) -> bool:
    """Whether the last hundred losses are those before, for the first time; asked once in each."""
    if course.reason or course.steps // RECENT == (course.steps - taken) // RECENT:
        return False
    last = course.losses[-(len(course.losses) // RECENT) * RECENT :][-3 * RECENT :]
    if len(last) < 2 * RECENT:
        return False
    means = np.reshape(last, (-1, RECENT)).mean(1)
    changes = abs(np.diff(means)) / max(abs(means[-1]), np.finfo(float).tiny)
    return bool(changes[-1] <= STALL and (len(changes) == 1 or changes[0] > 10 * STALL))
