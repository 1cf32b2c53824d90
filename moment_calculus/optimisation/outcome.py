"""What an optimisation found, and why it stopped, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Outcome:
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
    converged: bool
    reason: str
    decrement: float | None = None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.losses) - 1


@dataclass(frozen=True)
class Fit:
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

    @property
    def loss(self) -> float:
        """The last loss."""
        return self.losses[-1]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.losses) - 1


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
