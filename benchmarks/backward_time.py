"""Time and memory of a step by the three covariances: diagonal, backward, full.

    OMP_NUM_THREADS=1 python benchmarks/backward_time.py [--host numpyro] [--check] [--out FILE]

A step is one loss with its gradients, of 13-d-2 to 13-d-d-d-2 networks with a mean and a log
variance on batches of 64 (one also of 256), and of a 784-400-400-10 classifier on batches of 128.
Each covariance and the diagonal run in turn in one process; ratios to the diagonal are medians over
the repeats.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import hosts
import models
import numpy as np
from timing import COMPILED, Step

WIDTHS, DEPTHS, BATCH = (50, 200, 800), (1, 2, 3), 64
CLASSIFIER, IMAGES = (784, 400, 400, 10), 128
DIAGONAL, BACKWARD, FULL = "diagonal", "backward", "full"
SECONDS, FEWEST, MOST = 10.0, 5, 400  # that two modes take in turn, and their repeats
CERTAIN = 1.3  # what the products alone say, (3 + K) / 3, may be exceeded by so much
EAGER = 1.5  # and by so much more where nothing is compiled


@dataclass
class Row:
    """What was measured of one network.

    Args:
        network: its widths.
        batch: rows of a step.
        asked: K, the numbers of a row of which the covariance is asked for.
        milliseconds: median of the repeats by mode.
        ratios: to the diagonal step, compiled where the mode is.
        bytes: that a step needs beside its arguments, by mode.
    """

    network: str
    batch: int
    asked: int
    milliseconds: dict[str, float]
    ratios: dict[str, float]
    bytes: dict[str, int]

    def limits(self, host: str) -> dict[str, float]:
        """Largest ratios that are allowed, of two and more hidden layers."""
        if self.network.count("-") < 3:
            return {}
        limit = (3 + self.asked) / 3 * CERTAIN
        eager = EAGER if host == "pyro" else 1.0
        found = {BACKWARD: limit * eager, BACKWARD + COMPILED: limit}
        if FULL in self.ratios and "-200-" in self.network:
            found[BACKWARD] = min(found[BACKWARD], 0.1 * self.ratios[FULL])
        return {name: limit for name, limit in found.items() if name in self.ratios}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host, rows, slow = hosts.load(options.host, options.threads), [], []
    with host.own_parameters():
        for row in measured(host, options):
            rows.append(row)
            slow += show(row, options.host)
    found = {"machine": hosts.described(options.host), "rows": [asdict(row) for row in rows]}
    hosts.write(options.out, found)
    if options.check and slow:
        sys.exit(f"too slow: {'; '.join(slow)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--only", "--out")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    parser.add_argument("--no-full", action="store_true", help="leave covariance='full' out")
    return parser.parse_args(arguments)


def measured(host: ModuleType, options: argparse.Namespace) -> Iterator[Row]:
    compiled = options.host == "pyro" and not options.no_compiled
    modes = [DIAGONAL, BACKWARD] + [FULL] * (not options.no_full)
    compile_too = [mode + COMPILED for mode in (DIAGONAL, BACKWARD) if compiled]
    cases = [((13, *[width] * depth, 2), BATCH) for depth in DEPTHS for width in WIDTHS]
    for sizes, batch in [*cases, ((13, 200, 200, 2), 4 * BATCH)]:
        if options.only in name_of(sizes):
            data = host.normal(0, batch, 13), host.normal(1, batch)
            model = models.two_heads(host, host.network(sizes))
            yield one(host, sizes, model, data, batch, 2, modes + compile_too)
    if options.only in name_of(CLASSIFIER):
        generator = np.random.default_rng(0)
        images = generator.random((IMAGES, CLASSIFIER[0])).astype(np.float32)
        data = host.array(images), host.array(generator.integers(10, size=IMAGES))
        model = models.classification(host, host.network(CLASSIFIER))
        yield one(host, CLASSIFIER, model, data, IMAGES, 10, [DIAGONAL, BACKWARD, *compile_too])


def name_of(sizes: tuple[int, ...]) -> str:
    return "-".join(map(str, sizes))


def one(
    host: ModuleType,
    sizes: tuple[int, ...],
    model: Callable,
    data: tuple[Any, ...],
    batch: int,
    asked: int,
    modes: list[str],
) -> Row:
    steps = {mode: step_of(host, mode, model, data) for mode in modes}
    medians, ratios = {}, {}
    for mode in modes:
        reference = DIAGONAL + COMPILED if mode.endswith(COMPILED) else DIAGONAL
        if mode != reference:
            both = in_turn(steps[reference], steps[mode])
            medians |= dict(zip((reference, mode), 1e3 * np.median(both, axis=0), strict=True))
            ratios |= {reference: 1.0, mode: float(np.median(both[:, 1] / both[:, 0]))}
    memory = {mode: host.workspace(step) for mode, step in steps.items()}
    return Row(name_of(sizes), batch, asked, medians, ratios, memory)


def in_turn(*steps: Step) -> np.ndarray:
    """Seconds of steps in turn [repeats, steps], each after a call that fills the caches."""
    seconds: list[list[float]] = []
    end = time.perf_counter() + SECONDS
    while len(seconds) < FEWEST or (time.perf_counter() < end and len(seconds) < MOST):
        seconds.append([])
        for step in steps:
            step()
            start = time.perf_counter()
            step()
            seconds[-1].append(time.perf_counter() - start)
    return np.array(seconds)


def step_of(host: ModuleType, mode: str, model: Callable, data: tuple[Any, ...]) -> Step:
    name = mode.removesuffix(COMPILED)
    elbo, guide = models.closed_form(host, name, compiled=name != mode)
    return host.elbo_step(elbo, guide, model, data)[0]


def show(row: Row, host: str) -> list[str]:
    """Print a row; returns what is slower than allowed."""
    limits, slow = row.limits(host), []
    print(
        f"\n{row.network}, batch {row.batch:5d} {'ms':>9s} {'ratio':>7s} {'limit':>6s} {'MB':>8s}"
    )
    for mode, value in row.milliseconds.items():
        ratio, limit = row.ratios[mode], limits.get(mode)
        size = row.bytes[mode]
        text = f"{limit:6.2f}" if limit else " " * 6
        print(f"{mode:28s} {value:9.3f} {ratio:7.2f} {text} {size / 1e6:8.1f}", flush=True)
        if limit and ratio > limit:
            slow.append(f"{row.network}: {mode} {ratio:.2f} > {limit:.2f}")
    return slow


if __name__ == "__main__":
    main()
