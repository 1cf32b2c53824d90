"""Shared by the dropout examples: what is compared, of either framework."""

from __future__ import annotations

from dataclasses import dataclass

PARTICLES = 10  # of a step
DRAWS = 100  # of a prediction


@dataclass(frozen=True)
class Method:
    """An objective.

    Args:
        alpha: power of the black-box α energy; zero is the ELBO.
        propagation: ``"sampled"`` by masks, or ``"analytic"`` by moments.
    """

    alpha: float
    propagation: str = "sampled"

    @property
    def objective(self) -> dict:
        """Options of ``BBAlphaELBO``."""
        drawn = {"propagation": "sampled", "num_particles": PARTICLES}
        return {"alpha": self.alpha, **(drawn if self.is_drawn else {"covariance": "diagonal"})}

    @property
    def prediction(self) -> dict:
        """Options of ``predict``, but for a key."""
        drawn = {"propagation": "sampled", "num_particles": DRAWS}
        return drawn if self.is_drawn else {"covariance": "diagonal"}

    @property
    def is_drawn(self) -> bool:
        """Whether masks are drawn."""
        return self.propagation == "sampled"


METHODS = {
    "α = 0": Method(0.0),
    "α = 0.5": Method(0.5),
    "α = 1": Method(1.0),
    "α = 0.5 without draws": Method(0.5, "analytic"),
}


@dataclass(frozen=True)
class Setting:
    """How a network is trained.

    Args:
        method: what it minimises.
        p: probability to drop an input of any layer.
        hidden: number of hidden units.
        steps: number of updates.
        batch_size: rows of each.
        learning_rate: of Adam, at its peak.
        seed: of initial values, masks and mini-batches.
    """

    method: Method
    p: float
    hidden: int
    steps: int
    batch_size: int
    learning_rate: float
    seed: int
