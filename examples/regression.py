"""Shared by the regression examples: standardised data and scores, of either framework."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

FAMILIES: dict[str, dict | None] = {  # options of a tridiagonal guide; None of the mean-field one
    "mean field": None,
    "free scales": {"scales": "free"},
    "free scales, ρ = 0": {"scales": "free", "correlation": 0.0, "learn_correlation": False},
    "proportional": {"scales": "proportional"},
    "proportional, ρ = 0": {
        "scales": "proportional",
        "correlation": 0.0,
        "learn_correlation": False,
    },
}


@dataclass(frozen=True)
class Split:
    """Training and test rows, standardised by the training rows; y [n] in units of `scale`."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    scale: float


@dataclass(frozen=True)
class Schedule:
    """How a network is trained: the learning rate is that of the peak, and the KL divergence has
    its full weight after `kl_warm_up` steps."""

    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    kl_warm_up: int | None = None


@dataclass
class Run:
    """What one inference left behind: of the test rows, and of the training if it was one."""

    label: str
    mean: np.ndarray
    variance: np.ndarray
    epistemic_variance: np.ndarray
    log_prob: np.ndarray
    seconds: list[float]
    elbos: list[float]


class Clock:
    """Ends a training after some seconds, and writes down its ELBO on the way.

    It begins after the first steps, so that compiling does not count.
    """

    UNTIL: ClassVar[dict] = {"steps": 10**7, "every": 25, "progress_bar": False}  # of a fit

    def __init__(self, limit: float) -> None:
        self.limit, self.start = limit, 0.0
        self.seconds: list[float] = []
        self.elbos: list[float] = []

    def __call__(self, progress: Any) -> bool:
        now = time.perf_counter()
        self.start = self.start or now
        self.seconds.append(now - self.start)
        self.elbos.append(-progress.loss)
        return self.seconds[-1] >= self.limit

    def run(self, label: str, prediction: Any, log_prob: Any) -> Run:
        parts = prediction.mean, prediction.variance, prediction.epistemic_variance, log_prob
        return Run(label, *map(np.asarray, parts), self.seconds, self.elbos)


def groups_of(summary: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """The scale τ and the correlation ρ of every group of a tridiagonal guide."""
    return {name: {"tau": group.tau, "rho": group.rho} for name, group in summary.items()}


def standardise(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> Split:
    """Split at the boolean mask `test`; constant columns keep their unit."""
    x_mean, x_scale = x[~test].mean(0), x[~test].std(0)
    x_scale[np.ptp(x[~test], axis=0) == 0] = 1.0  # std() of a constant column may be 1e-13
    y_mean, y_scale = y[~test].mean(), y[~test].std()
    x, y = (x - x_mean) / x_scale, (y - y_mean) / y_scale
    parts = (x[~test], y[~test], x[test], y[test])
    return Split(*(np.asarray(part, np.float32) for part in parts), float(y_scale))


def scores(split: Split, log_prob: Any, mean: Any) -> tuple[float, float]:
    """Mean test log-likelihood and root mean squared error, in the units of the raw target."""
    log_prob, mean = np.asarray(log_prob), np.asarray(mean)
    rmse = np.sqrt(np.square(mean - split.y_test).mean()) * split.scale
    return float(log_prob.mean() - np.log(split.scale)), float(rmse)
