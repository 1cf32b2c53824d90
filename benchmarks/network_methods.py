"""L-BFGS against Adam in the same time, on a network for one of the UCI regressions.

    python benchmarks/network_methods.py NAME.npz [--backend numpyro] [--check]

The file holds X [N, D] and y [N]. The network has 50 ReLUs and one output, all rows in every step.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HIDDEN, SEEDS = 50, 10


class Clock:
    """Ends a training when its time is up."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start = seconds, 0.0

    def __call__(self, progress: Any) -> bool:
        self.start = self.start or time.perf_counter()
        return time.perf_counter() - self.start > self.seconds


def network(host: Any) -> Callable:
    sample, normal = host.language.sample, host.dist.Normal(0.0, 1.0)

    def layer(name: str, x: Any, outputs: int) -> Any:
        weight = sample(f"{name}.weight", normal.expand([x.shape[-1], outputs]).to_event(2))
        return x @ weight + sample(f"{name}.bias", normal.expand([outputs]).to_event(1))

    def model(x: Any, y: Any) -> None:
        out = layer("last", layer("first", x, HIDDEN).clip(0), 1)[..., 0]
        scale = sample("scale", host.dist.HalfNormal(1.0))
        with host.language.plate("data", len(x)):
            sample("obs", host.dist.Normal(out, scale), obs=y)

    return model


def compared(module: ModuleType, data: list[Any], seed: int) -> tuple[float, float]:
    """Losses after L-BFGS, and after Adam in the same time; prints a row."""
    model = network(module.HOST)
    ours = module.fresh_fit(seed, model, *data, method="lbfgs")
    seconds = ours.seconds["fitting"]
    options = {"steps": 10**7, "every": 5, "callback": Clock(seconds)}
    adam = module.fresh_fit(seed, model, *data, **options)
    print(
        f"seed {seed}: L-BFGS {ours.loss:.2f} after {ours.steps} steps, {seconds:.1f} s; "
        f"Adam {adam.loss:.2f} after {adam.steps} steps",
        flush=True,
    )
    return ours.loss, adam.loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", choices=("pyro", "numpyro"), default="pyro")
    parser.add_argument("--check", action="store_true", help="fail if Adam's median is lower")
    options = parser.parse_args()
    module = importlib.import_module(f"posteriors_{options.backend}")
    with np.load(options.file) as arrays:
        parts = [np.asarray(arrays[name], np.float32) for name in ("X", "y")]
    data = [module.HOST.array((part - part.mean(0)) / part.std(0)) for part in parts]
    losses = [compared(module, data, seed) for seed in range(SEEDS)]
    ours, adam = map(statistics.median, zip(*losses, strict=True))
    wins = sum(one < other for one, other in losses)
    print(f"median L-BFGS {ours:.2f}, Adam {adam:.2f}; L-BFGS lower for {wins} of {SEEDS} seeds")
    sys.exit("Adam reaches a lower loss" if options.check and ours >= adam else 0)


if __name__ == "__main__":
    main()
