"""What both hosts train on and are judged by: rows, batches, the start, the test rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HIDDEN, BATCH, DRAWS = 50, 32, 500
PRIORS = ("empirical Bayes", "N(0, 1)")
EVERY = 25  # updates, predictions are evaluated
Posterior = dict[str, tuple[np.ndarray, np.ndarray]]  # locations and scales by site


@dataclass(frozen=True)
class Split:
    """Rows in units of the training rows' standard deviations; `unit` is that of y."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    unit: float
    number: int

    @classmethod
    def read(cls, file: Path, number: int) -> Split:
        with np.load(file) as arrays:
            x, y, test = arrays["X"], arrays["y"], arrays["test_mask"][number]
        spread = x[~test].std(0)
        x = (x - x[~test].mean(0)) / np.where(spread > 0, spread, 1.0)
        unit = y[~test].std()
        y = (y - y[~test].mean()) / unit
        parts = (part.astype(np.float32) for part in (x[~test], y[~test], x[test], y[test]))
        return cls(*parts, float(unit), number)

    @property
    def weight(self) -> float:
        """Of a row of a batch."""
        return len(self.x) / BATCH

    def batches(self, count: int) -> Iterator[np.ndarray]:
        """Rows of so many batches at a time [count, batch]; every epoch in another order."""
        generator, batches = np.random.default_rng(self.number), []
        while True:
            order = generator.permutation(len(self.x))
            batches += np.split(order[: len(order) // BATCH * BATCH], len(order) // BATCH)
            while len(batches) >= count:
                yield np.stack(batches[:count])
                batches = batches[count:]

    def start(self) -> dict[str, np.ndarray]:
        """He's initial weights, and random hidden biases, so that kinks are spread."""
        inputs, generator = self.x.shape[1], np.random.default_rng(self.number)
        scales = {
            "weight0": ((2 / inputs) ** 0.5, (inputs, HIDDEN)),
            "bias0": (1.0, (HIDDEN,)),
            "weight1": ((2 / HIDDEN) ** 0.5, (HIDDEN, 2)),
            "bias1": (0.0, (2,)),
        }
        draws = {
            name: scale * generator.normal(size=size) for name, (scale, size) in scales.items()
        }
        return {name: draw.astype(np.float32) for name, draw in draws.items()}

    def log_likelihood(self, posterior: Posterior) -> float:
        """Mean over the test rows, in the units of y, by draws from the posterior."""
        generator = np.random.default_rng(0)
        draws = {
            name: loc + scale * generator.normal(size=(DRAWS, *loc.shape))
            for name, (loc, scale) in sorted(posterior.items())
        }
        hidden = np.maximum(self.x_test @ draws["weight0"] + draws["bias0"][:, None], 0.0)
        loc, log_variance = np.moveaxis(hidden @ draws["weight1"] + draws["bias1"][:, None], -1, 0)
        errors = (self.y_test - loc) ** 2 / np.exp(log_variance)
        densities = -0.5 * (np.log(2 * np.pi) + log_variance + errors)
        mixture = np.logaddexp.reduce(densities, axis=0) - np.log(DRAWS)
        return float(mixture.mean() - np.log(self.unit))
