"""What an optimisation found, and why it stopped, in words."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class _Course:
    """What follows from the losses of a training."""

    losses: list[float]

    @property
    def loss(self) -> float:
        """The last loss."""
        return self.losses[-1]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.losses) - 1


@dataclass
class Outcome(_Course):
    """Where an optimisation stopped.

    Args:
        place: parameters, flat.
        losses: the loss at the start and after every step.
        converged: whether it stopped because nothing is left to gain.
        reason: why it stopped, in words.
        decrement: Newton decrement ½ gᵀ H⁻¹ g at the place, in nats: what one more step would
            gain; None if it was not computed.
    """

    place: np.ndarray
    losses: list[float]
    converged: bool = False
    reason: str = ""
    decrement: float | None = None

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
        return Fit(guide, params, self.losses, self.converged, self.reason, self.decrement, seconds)


@dataclass(frozen=True)
class Fit(_Course):
    """A trained guide, and how its training went.

    Args:
        guide: the guide.
        params: its parameters and the model's by name, in the host's conventions.
        losses: negative ELBO at the start and after every step.
        converged: whether the training stopped because nothing was left to gain.
        reason: why it stopped, in words.
        decrement: Newton decrement at the end, in nats; None for methods that do not know it.
        seconds: wall-clock time by part: ``"preparing"`` (initialising, compiling) and
            ``"fitting"``.
    """

    guide: Any
    params: dict[str, Any] = field(repr=False)
    losses: list[float] = field(repr=False)
    converged: bool
    reason: str
    decrement: float | None
    seconds: dict[str, float]


def check_options(method: str, deterministic: Iterable[str], steps: int | None) -> None:
    """Refuse an unknown method, and no steps.

    Args:
        method: what the user asks for.
        deterministic: the methods beside Adam.
        steps: likewise.

    Raises:
        ValueError: naming the candidates.
    """
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    candidates = ["adam", *deterministic]
    if method not in candidates:
        raise ValueError(f"method must be one of {', '.join(candidates)}, got {method!r}")


def check_deterministic(one: float, other: float) -> None:
    """Refuse a loss that is another one when it is evaluated again.

    Args:
        one: the loss.
        other: the loss with other random numbers.

    Raises:
        ValueError: naming both.
    """
    if one != other:
        raise ValueError(
            f"the loss is not deterministic: {one} and {other} with different random numbers. "
            "Sites in sample_sites, subsampling plates and draws of the model itself make it "
            "noise: use method='adam', or an objective without them"
        )
