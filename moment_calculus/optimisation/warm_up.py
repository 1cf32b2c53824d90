"""A weight of the KL divergence that rises from zero to one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WarmUp:
    """A weight that is zero for ``wait`` steps, then rises linearly to one in ``rise`` steps."""

    wait: int
    rise: int

    def __post_init__(self) -> None:
        if self.wait < 0 or self.rise < 0:
            raise ValueError(f"kl_warm_up takes numbers of steps, got {self.wait}, {self.rise}")

    def weight(self, step: int) -> float:
        """Return the weight in a step, the first being 0."""
        if step < self.wait:
            return 0.0
        return min(1.0, (step - self.wait + 1) / max(self.rise, 1))


def parse_warm_up(argument: int | tuple[int, int] | None) -> WarmUp | None:
    """Return the user's warm-up: steps of the rise, or a pair of steps to wait and to rise."""
    if argument is None:
        return None
    return WarmUp(*argument) if isinstance(argument, tuple) else WarmUp(0, argument)
