"""What a training found, and why it stopped, in words."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

INVALID = "a parameter left what it is constrained to"
RECENT = 100  # losses of mini-batches that are compared
ERRORS = 3.0  # standard errors from which draws contradict a loss, together with
SHARE = 0.01  # of the loss


class ByDraws(NamedTuple):
    """What a loss is by draws of the guide, beside its closed form.

    Args:
        value: the loss by draws; NaN if they were not run.
        standard_error: Monte Carlo standard error of ``value``.
        loss: the closed form, of the same rows of data.
        note: why draws were not run; where they contradict the closed form, the remedies.
    """

    value: float = math.nan
    standard_error: float = math.nan
    loss: float = math.nan
    note: str = "not run, as by_draws=False"

    @property
    def is_off(self) -> bool:
        """Whether draws contradict the loss: by three standard errors and one per cent of it."""
        if math.isnan(self.loss):
            return False
        certain = max(SHARE * abs(self.loss), ERRORS * self.standard_error)
        return not abs(self.value - self.loss) <= certain  # also where draws are no numbers

    @property
    def is_precise(self) -> bool:
        """Whether draws would tell one per cent of the loss from nothing."""
        return ERRORS * self.standard_error <= SHARE * abs(self.loss)

    def __str__(self) -> str:
        """In words."""
        if math.isnan(self.loss):
            return f"by draws: {self.note}"
        drawn = f"by draws {self.value:.5g} ± {self.standard_error:.2g}"
        return f"{drawn}, by moments {self.loss:.5g}"  # which may be of fewer rows


@dataclass
class Course:
    """How a training went so far.

    Args:
        losses: of the steps; with mini-batches each of its own batch.
        steps: how many were made.
        converged: whether it stopped because nothing is left to gain.
        reason: why it stopped, in words; empty while it goes on.
        change: relative change of the loss at the end; None if it was not looked at.
        decrement: Newton decrement ½ gᵀ H⁻¹ g, in nats: what one more step would gain; None if it
            was not computed.
        held_out: held-out log-likelihood by the number of steps before it.
        best: number of steps at the best of these.
        saddles: how many saddles it stepped off.
    """

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    converged: bool = False
    reason: str = ""
    change: float | None = None
    decrement: float | None = None
    held_out: dict[int, float] = field(default_factory=dict)
    best: int | None = None
    saddles: int = 0

    @property
    def loss(self) -> float:
        """The last loss."""
        return self.losses[-1]

    def stop(self, converged: bool, why: str) -> None:
        """Write down why it stopped.

        Args:
            converged: whether nothing is left to gain.
            why: in words.
        """
        self.converged = converged
        self.reason = f"{'converged' if converged else 'stopped'}: {why}"

    def fit(self, guide: Any, params: dict[str, Any], started: float, prepared: float) -> Fit:
        """The result for the user, now.

        Args:
            guide: the guide.
            params: its parameters.
            started: when the preparations began, by ``time.perf_counter``.
            prepared: when they were done.
        """
        seconds = {"preparing": prepared - started, "fitting": time.perf_counter() - prepared}
        course = {name: getattr(self, name) for name in Course.__dataclass_fields__}
        return Fit(**course, guide=guide, params=params, seconds=seconds)


@dataclass
class Outcome(Course):
    """Where a deterministic method is.

    Args:
        place: parameters, flat.
        begun: for L-BFGS, number of steps after which all parameters move; None before.
    """

    place: np.ndarray = field(default_factory=lambda: np.zeros(0))
    begun: int | None = None


@dataclass(kw_only=True)
class Fit(Course):
    """A trained guide, and how its training went.

    Args:
        guide: the guide.
        params: its parameters and the model's by name, in the host's conventions.
        seconds: wall-clock time by part: ``"preparing"`` (initialising, compiling) and
            ``"fitting"``.
        losses: negative ELBO at the start and after every step; with mini-batches before every
            step, of its batch.
        steps: number of steps.
        converged: whether the training stopped because nothing was left to gain.
        reason: why it stopped, in words.
        change: relative change of the loss at the end; None for methods that do not look at it.
        decrement: Newton decrement at the end, in nats; None for methods that do not know it.
        held_out: held-out log-likelihood by the number of steps before it.
        best: number of steps after which it was highest; ``params`` are those of then.
        saddles: how many saddles the training stepped off, along a negative curvature.
        by_draws: the loss by draws of the trained guide, or why there is none.
    """

    guide: Any
    params: dict[str, Any] = field(repr=False)
    seconds: dict[str, float]
    losses: list[float] = field(repr=False, default_factory=list)
    by_draws: ByDraws = field(default_factory=ByDraws)

    @property
    def rank(self) -> float:
        """Of several fits of one model the best has the lowest.

        The held-out log-likelihood, if there is one; or the mean of the last losses.
        """
        if self.best is not None:
            return -self.held_out[self.best]
        recent = self.losses[-1:] if len(self.losses) > self.steps else self.losses[-RECENT:]
        mean = float(np.mean(recent))
        return np.inf if np.isnan(mean) else mean
