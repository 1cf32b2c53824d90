"""Shared by the dropout examples: what is compared, of either framework."""

from __future__ import annotations

from collections.abc import Sequence
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
        rates: probabilities to drop inputs, by site.
        hidden: number of hidden units.
        steps: number of updates.
        batch_size: rows of each.
        learning_rate: of Adam, at its peak.
        seed: of initial values, masks and mini-batches.
    """

    method: Method
    rates: dict[str, float]
    hidden: int
    steps: int
    batch_size: int
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Net:
    """A classifier, and how it is trained.

    Args:
        p: probability to drop a hidden unit.
        p_pixel: probability to drop a pixel.
        propagation: ``"sampled"``, ``"analytic"``, or ``"mean"`` without dropout.
        alpha: power of the black-box α energy.
        hidden: units of each hidden layer.
        steps: number of updates.
        particles: of a step and of an attack, if masks are drawn.
        draws: of a prediction, if masks are drawn.
        batch_size: images of a step.
        learning_rate: of Adam.
        seed: of initial values, masks and mini-batches.
        kl_warm_up: steps until the KL divergence has its full weight.
    """

    p: float
    p_pixel: float
    propagation: str
    alpha: float
    hidden: int
    steps: int
    particles: int = PARTICLES
    draws: int = DRAWS
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0
    kl_warm_up: int | None = None

    @property
    def rates(self) -> dict[str, float]:
        """Probabilities by site."""
        later = dict.fromkeys(["hidden1.weight", "hidden2.weight", "output.weight"], self.p)
        return {"hidden0.weight": self.p_pixel, **later}

    def options(self, count: int) -> dict:
        """Of objectives and predictions, with a number of draws."""
        if self.propagation == "sampled":
            return {"propagation": "sampled", "num_particles": count}
        return {"propagation": self.propagation, "covariance": "diagonal"}


def init_scale(shape: Sequence[int]) -> float:
    """Scale of initial values: He's of weights [outputs, inputs], zero of biases."""
    return (2 / shape[-1]) ** 0.5 if len(shape) == 2 else 0.0
