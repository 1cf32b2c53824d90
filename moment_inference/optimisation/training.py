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

from moment_inference.optimisation.outcome import RECENT, Course

SADDLES = 5  # largest number of saddles that a training leaves
STALL_TOLERANCE = 1e-5  # Adam has stalled if the mean of 100 losses changes by less


class Trainer(Protocol):
    """A training method together with the parameters it trains."""

    def advance(self, course: Course, steps: int, bar: ProgressBar) -> None:
        """Continue to ``steps`` steps in total; record losses and any reason to stop."""

    def leave_saddle(self) -> bool:
        """Move off a saddle; return whether there was one."""

    def values(self) -> dict[str, Any]:
        """Return the parameters by name, in the framework's conventions."""

    def terms(self) -> dict[str, float]:
        """Return the sites' contributions to the ELBO; empty if they are unknown."""

    def held_out_log_likelihood(self) -> float:
        """Return the held-out log-likelihood."""

    def snapshot(self) -> Any:
        """Return the parameters, for :meth:`load_snapshot`."""

    def load_snapshot(self, snapshot: Any) -> None:
        """Return to the parameters that :meth:`snapshot` returned."""

    def state(self) -> Any:
        """Return all that the next steps depend on, as dictionaries, lists and arrays."""

    def load_state(self, state: Any) -> None:
        """Continue from a state that :meth:`state` returned."""

    def finish(self, course: Course) -> None:
        """Record the final loss if it has not been recorded yet."""


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
class TrainingPlan:
    """The limits of a training, and what happens between its stretches."""

    steps: int  # largest number of steps
    stretch_length: int | None = None  # steps of a stretch; None for a single stretch
    # Relative change of the mean loss between stretches at which training has converged;
    # None if the method itself decides.
    tolerance: float | None = None
    # Number of held-out evaluations without improvement before stopping; None without
    # held-out data.
    patience: int | None = None
    callback: Callable[[Progress], Any] | None = None  # True ends the training
    write_checkpoint: Callable[[Course, Any], None] | None = None  # stores the training
    progress_bar: bool | None = None  # None shows it on a terminal only


def train(
    trainer: Trainer, course: Course, plan: TrainingPlan, best_parameters: Any = None
) -> None:
    """Train until there is a reason to stop; ``best_parameters`` are the best so far."""
    with ProgressBar(plan.steps, course.steps, plan.progress_bar, trainer.terms) as bar:
        while not course.reason and course.steps < plan.steps:
            before = course.steps
            target = min(plan.steps, before + (plan.stretch_length or plan.steps))
            trainer.advance(course, target, bar)
            if course.losses and not course.loss > -math.inf:  # NaN too
                course.stop(False, "the loss is not a number")
                break
            best_parameters = _check_held_out(trainer, course, plan, best_parameters)
            _check_convergence(course, plan, course.steps - before)
            _leave_saddle(trainer, course, course.steps - before)
            callback_stops = plan.callback is not None and plan.callback(Progress(course, trainer))
            if plan.write_checkpoint is not None:
                plan.write_checkpoint(course, best_parameters)
            if callback_stops and not course.reason:  # a later call continues the checkpoint
                course.reason = "stopped: the callback asked for it"
    if not course.reason:
        course.reason = f"ran {course.steps} steps"
    trainer.finish(course)
    if course.best is not None:
        trainer.load_snapshot(best_parameters)


def _check_held_out(
    trainer: Trainer, course: Course, plan: TrainingPlan, best_parameters: Any
) -> Any:
    """Evaluate the held-out data; return the best parameters so far."""
    if plan.patience is None:
        return best_parameters
    value = trainer.held_out_log_likelihood()
    course.held_out[course.steps] = value = -math.inf if math.isnan(value) else value
    if course.best is None or value > course.held_out[course.best]:
        course.best, best_parameters = course.steps, trainer.snapshot()
    stale = sum(step > course.best for step in course.held_out)
    if stale >= plan.patience and not course.reason:
        course.reason = (
            f"stopped: the held-out log-likelihood did not rise in {stale} evaluations; "
            f"the parameters are those after {course.best} steps"
        )
    return best_parameters


def _check_convergence(course: Course, plan: TrainingPlan, stretch_steps: int) -> None:
    """Compare the mean losses of the last two stretches."""
    if plan.tolerance is None or len(course.losses) < 2 * stretch_steps or not stretch_steps:
        return
    before, now = np.reshape(course.losses[-2 * stretch_steps :], (2, stretch_steps)).mean(1)
    course.change = float(abs(now - before) / max(abs(now), np.finfo(float).tiny))
    if course.change <= plan.tolerance and not course.reason:
        course.stop(True, f"the mean loss of {stretch_steps} steps changed by {course.change:.1e}")


def _leave_saddle(trainer: Trainer, course: Course, stretch_steps: int) -> None:
    """Move off a saddle if the training has settled on one, and continue."""
    if not (course.converged or _has_stalled(course, stretch_steps)) or not trainer.leave_saddle():
        return
    course.saddles += 1
    course.converged, course.reason = False, ""
    if course.saddles > SADDLES:
        course.stop(False, "stationary, not minimal: the curvature is negative along a direction")


def _has_stalled(course: Course, stretch_steps: int) -> bool:
    """Every 100 steps, return whether the mean loss has just stopped changing."""
    if course.reason or course.steps // RECENT == (course.steps - stretch_steps) // RECENT:
        return False
    last = course.losses[-(len(course.losses) // RECENT) * RECENT :][-3 * RECENT :]
    if len(last) < 2 * RECENT:
        return False
    means = np.reshape(last, (-1, RECENT)).mean(1)
    changes = abs(np.diff(means)) / max(abs(means[-1]), np.finfo(float).tiny)
    return bool(
        changes[-1] <= STALL_TOLERANCE and (len(changes) == 1 or changes[0] > 10 * STALL_TOLERANCE)
    )


TERM_INTERVAL = 1.0  # least seconds between two evaluations of the terms of the ELBO


class ProgressBar:
    """A progress bar over the steps of a training."""

    def __init__(
        self, steps: int, done: int, shown: bool | None, terms: Callable[[], dict[str, float]]
    ) -> None:
        disable = None if shown is None else not shown  # None: on terminals
        self._bar = tqdm(total=steps, initial=done, disable=disable, desc="fit", unit="step")
        self._terms, self._terms_text, self._terms_updated = terms, "", 0.0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def report(self, steps: int, loss: float) -> None:
        """Show that ``steps`` more steps were made, and the last loss."""
        if self._bar.disable:
            return
        if time.monotonic() - self._terms_updated > TERM_INTERVAL:
            self._terms_text, self._terms_updated = describe_terms(self._terms()), time.monotonic()
        self._bar.set_postfix_str(f"ELBO {-loss:.6g}{self._terms_text}", refresh=False)
        self._bar.update(steps)


def write_below_bar(text: str, shown: bool | None) -> None:
    """Write a line below a progress bar, if the bar is shown."""
    if shown or (shown is None and sys.stderr.isatty()):
        tqdm.write(text, file=sys.stderr)


def describe_terms(terms: dict[str, float]) -> str:
    """Describe the contributions to an ELBO: ": obs -20, weight -3.5"."""
    largest = sorted(terms.items(), key=lambda term: -abs(term[1]))
    shown = [f"{name} {value:.4g}" for name, value in largest[:4]]
    rest = sum(value for _, value in largest[4:])
    if largest[4:]:
        shown.append(f"others {rest:.4g}")
    return ": " + ", ".join(shown) if shown else ""
