"""L-BFGS against Adam in the same time, on a network for one of the UCI regressions.

    python benchmarks/network_methods.py NAME.npz [--host numpyro] [--check]

The file holds X [N, D] and y [N]. The network has 50 ReLUs and one output, all rows in every step.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import hosts
import numpy as np
from models import network_regression

HIDDEN, SEEDS = 50, 10


class Clock:
    """Ends a training when its time is up."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start = seconds, 0.0

    def __call__(self, progress: Any) -> bool:
        self.start = self.start or time.perf_counter()
        return time.perf_counter() - self.start > self.seconds


def compared(host: ModuleType, data: list[Any], seed: int) -> tuple[float, float]:
    """Losses after L-BFGS, and after Adam in the same time; prints a row."""
    model = network_regression(host, HIDDEN)
    ours = hosts.fitted(host, model, *data, seed=seed, method="lbfgs")
    seconds = ours.seconds["fitting"]
    options = {"steps": 10**7, "every": 5, "callback": Clock(seconds)}
    adam = hosts.fitted(host, model, *data, seed=seed, **options)
    print(
        f"seed {seed}: L-BFGS {ours.loss:.2f} after {ours.steps} steps, {seconds:.1f} s; "
        f"Adam {adam.loss:.2f} after {adam.steps} steps",
        flush=True,
    )
    return ours.loss, adam.loss


def main() -> None:
    parser = hosts.parser(__doc__, "--host", "--check")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    host = hosts.load(options.host)
    with np.load(options.file) as arrays:
        parts = [np.asarray(arrays[name], np.float32) for name in ("X", "y")]
    data = [host.array((part - part.mean(0)) / part.std(0)) for part in parts]
    losses = [compared(host, data, seed) for seed in range(SEEDS)]
    ours, adam = map(statistics.median, zip(*losses, strict=True))
    wins = sum(one < other for one, other in losses)
    print(f"median L-BFGS {ours:.2f}, Adam {adam:.2f}; L-BFGS lower for {wins} of {SEEDS} seeds")
    sys.exit("Adam reaches a lower loss" if options.check and ours >= adam else 0)


if __name__ == "__main__":
    main()
