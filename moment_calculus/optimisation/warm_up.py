"""A weight of the KL divergence that rises from zero to one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WarmUp:
    """The weight is zero at first, then rises linearly to one.

    Args:
        wait: steps with zero.
        rise: steps until it is one.

    Raises:
        ValueError: if a number of steps is negative.
    """

    wait: int
    rise: int

    def __post_init__(self) -> None:
        if self.wait < 0 or self.rise < 0:
            raise ValueError(f"kl_warm_up takes numbers of steps, got {self.wait}, {self.rise}")

    def weight(self, step: int) -> float:
        """The weight in a step, the first being 0.

        Args:
            step: number of steps made before.

        Example:
            >>> [WarmUp(2, 4).weight(step) for step in (1, 2, 4, 6)]
            [0.0, 0.25, 0.75, 1.0]
        """
        if step < self.wait:
            return 0.0
        return min(1.0, (step - self.wait + 1) / max(self.rise, 1))


def warm_up(argument: int | tuple[int, int] | None) -> WarmUp | None:
    """The warm-up that a user asks for.

    Args:
        argument: steps of the rise, or steps of waiting and of the rise.
    """
    if argument is None:
        return None
    return WarmUp(*argument) if isinstance(argument, tuple) else WarmUp(0, argument)
