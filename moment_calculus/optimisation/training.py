"""The training loop of all methods: stretches of steps, checks, a progress bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from moment_calculus.optimisation.outcome import RECENT, Course

SADDLES = 5  # largest number of saddles that a training steps off
STALL = 1e-5  # Adam stands still if the mean of 100 losses changes by less


class Trainer(Protocol):
    """A method with the parameters that it trains."""

    def advance(self, course: Course, steps: int, bar: Bar) -> None:
        """Go on to a number of steps, and note losses and the reason to stop."""

    def leave_saddle(self) -> bool:
        """Step off a saddle; tell whether there was one."""

    def values(self) -> dict[str, Any]:
        """Return the parameters by name, in the framework's conventions."""

    def terms(self) -> dict[str, float]:
        """Return the sites' contributions to the ELBO; empty if they are unknown."""

    def score(self) -> float:
        """Return the held-out log-likelihood."""

    def snapshot(self) -> Any:
        """Return the parameters, for :meth:`revert`."""

    def revert(self, kept: Any) -> None:
        """Return to the parameters that :meth:`snapshot` returned."""

    def state(self) -> Any:
        """Return all that the next steps depend on, as dictionaries, lists and arrays."""

    def restore(self, state: Any) -> None:
        """Go on from a state that :meth:`state` returned."""

    def finish(self, course: Course) -> None:
        """Write down the last loss, if it is known only now."""


@dataclass(frozen=True)
class Progress:
    """The progress of a training, which a callback receives.

    Args:
        course: its losses, steps and held-out log-likelihoods so far.
        trainer: computes the parameters and the terms of the ELBO when they are asked
            for.
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
        """The parameters by name, in the framework's conventions."""
        return self.trainer.values()

    @property
    def terms(self) -> dict[str, float]:
        """What each site contributes to the ELBO; empty if the objective does not tell."""
        return self.trainer.terms()


@dataclass(frozen=True)
class Plan:
    """What is done between the stretches of a training."""

    steps: int  # largest number of steps
    every: int | None = None  # steps of a stretch; None for a single stretch
    # Relative change of the mean loss between stretches at which training has converged;
    # None if the method itself decides.
    tolerance: float | None = None
    # Held-out evaluations without a rise after which training stops; None without
    # held-out data.
    patience: int | None = None
    callback: Callable[[Progress], Any] | None = None  # True ends the training
    write: Callable[[Course, Any], None] | None = None  # stores the training
    progress_bar: bool | None = None  # None shows it on a terminal only


def train(trainer: Trainer, course: Course, plan: Plan, kept: Any = None) -> None:
    """Train until there is a reason to stop; ``kept`` are the best parameters so far."""
    with Bar(plan.steps, course.steps, plan.progress_bar, trainer.terms) as bar:
        while not course.reason and course.steps < plan.steps:
            before = course.steps
            target = min(plan.steps, before + (plan.every or plan.steps))
            trainer.advance(course, target, bar)
            if course.losses and math.isnan(course.loss):
                course.stop(False, "the loss is not a number")
                break
            kept = _check_held_out(trainer, course, plan, kept)
            _check_convergence(course, plan, course.steps - before)
            _leave_saddle(trainer, course, course.steps - before)
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


def _check_held_out(trainer: Trainer, course: Course, plan: Plan, kept: Any) -> Any:
    """Evaluate the held-out data; return the best parameters so far."""
    if plan.patience is None:
        return kept
    score = trainer.score()
    course.held_out[course.steps] = score = -math.inf if math.isnan(score) else score
    if course.best is None or score > course.held_out[course.best]:
        course.best, kept = course.steps, trainer.snapshot()
    stale = sum(step > course.best for step in course.held_out)
    if stale >= plan.patience and not course.reason:
        course.reason = (
            f"stopped: the held-out log-likelihood did not rise in {stale} evaluations; "
            f"the parameters are those after {course.best} steps"
        )
    return kept


def _check_convergence(course: Course, plan: Plan, taken: int) -> None:
    """Compare the mean losses of the last two stretches."""
    if plan.tolerance is None or len(course.losses) < 2 * taken or not taken:
        return
    before, now = np.reshape(course.losses[-2 * taken :], (2, taken)).mean(1)
    course.change = float(abs(now - before) / max(abs(now), np.finfo(float).tiny))
    if course.change <= plan.tolerance and not course.reason:
        course.stop(True, f"the mean loss of {taken} steps changed by {course.change:.1e}")


def _leave_saddle(trainer: Trainer, course: Course, taken: int) -> None:
    """Go on beside a saddle, if the training has come to rest at one."""
    if not (course.converged or _has_stalled(course, taken)) or not trainer.leave_saddle():
        return
    course.saddles += 1
    course.converged, course.reason = False, ""
    if course.saddles > SADDLES:
        course.stop(False, "stationary, not minimal: the curvature is negative along a direction")


def _has_stalled(course: Course, taken: int) -> bool:
    """Tell, once in 100 steps, whether their mean loss stays for the first time."""
    if course.reason or course.steps // RECENT == (course.steps - taken) // RECENT:
        return False
    last = course.losses[-(len(course.losses) // RECENT) * RECENT :][-3 * RECENT :]
    if len(last) < 2 * RECENT:
        return False
    means = np.reshape(last, (-1, RECENT)).mean(1)
    changes = abs(np.diff(means)) / max(abs(means[-1]), np.finfo(float).tiny)
    return bool(changes[-1] <= STALL and (len(changes) == 1 or changes[0] > 10 * STALL))


SECONDS = 1.0  # least time between two evaluations of the parts of the ELBO


class Bar:
    """A progress bar over the steps of a training."""

    def __init__(
        self, steps: int, done: int, shown: bool | None, terms: Callable[[], dict[str, float]]
    ) -> None:
        disable = None if shown is None else not shown  # None: on terminals
        self._bar = tqdm(total=steps, initial=done, disable=disable, desc="fit", unit="step")
        self._terms, self._parts, self._looked = terms, "", 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def report(self, steps: int, loss: float) -> None:
        """Show that ``steps`` more steps were made, and the last loss."""
        if self._bar.disable:
            return
        if time.monotonic() - self._looked > SECONDS:
            self._parts, self._looked = parts_in_words(self._terms()), time.monotonic()
        self._bar.set_postfix_str(f"ELBO {-loss:.6g}{self._parts}", refresh=False)
        self._bar.update(steps)


def last_line(text: str, shown: bool | None) -> None:
    """Write a line below a progress bar, if the bar is shown."""
    if shown or (shown is None and sys.stderr.isatty()):
        tqdm.write(text, file=sys.stderr)


def parts_in_words(terms: dict[str, float]) -> str:
    """Describe the contributions to an ELBO: ": obs -20, weight -3.5"."""
    largest = sorted(terms.items(), key=lambda term: -abs(term[1]))
    shown = [f"{name} {value:.4g}" for name, value in largest[:4]]
    rest = sum(value for _, value in largest[4:])
    if largest[4:]:
        shown.append(f"others {rest:.4g}")
    return ": " + ", ".join(shown) if shown else ""
