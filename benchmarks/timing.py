"""Interleaved timing of contenders, and tables of it."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Step = Callable[[], object]

SAMPLED, DROPOUT = "draws, 13-50-1, batch 64", "dropout, 13-50-1, batch 64"
BY_DRAWS, ENERGY = "DeterministicELBO sampled", "BBAlphaELBO analytic, diagonal"
PARTICLES = {count: f"BBAlphaELBO sampled, K = {count}" for count in (1, 10)}
COMPILED = ", compiled"
SMALL, LARGE = "13-50-1, batch 64", "784-400-400-10, batch 128"


@dataclass
class Table:
    """Seconds by contender, the reference first, and the largest ratios to it that are allowed."""

    title: str
    seconds: dict[str, float]
    limits: dict[str, float]


def processor_seconds() -> float:
    """Of this process and of those that it started and that have ended, such as compilers."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def dropout_limits(seconds: dict[str, float]) -> dict[str, float]:
    """Of ten particles three of one; of the fastest energy without draws half of ten particles."""
    ten = seconds[PARTICLES[10]] / seconds[PARTICLES[1]]
    fastest = ENERGY + COMPILED if ENERGY + COMPILED in seconds else ENERGY
    return {PARTICLES[10]: 3.0, fastest: 0.5 * ten}


def measure(
    steps: dict[str, Step],
    repeats: int,
    summary: Callable[[Iterable[float]], Any] = min,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Seconds of each contender; all run in turn, so that a disturbance meets all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 3):
        for name, step in steps.items():
            start = clock()
            step()
            seconds[name].append(clock() - start)
    return {name: summary(values[3:]) for name, values in seconds.items()}


def show(table: Table) -> list[str]:
    """Print a table; returns the contenders that are slower than allowed."""
    reference, slow = next(iter(table.seconds.values())), []
    print(f"\n{table.title:42s} {'ms':>9s} {'ratio':>7s} {'limit':>6s}")
    for name, value in table.seconds.items():
        ratio, limit = value / reference, table.limits.get(name)
        print(f"{name:42s} {1e3 * value:9.3f} {ratio:7.2f} {limit or '':>6}")
        if limit and ratio > limit:
            slow.append(f"{table.title}: {name} {ratio:.2f} > {limit}")
    return slow


def report(tables: Iterable[Table], options: argparse.Namespace) -> None:
    """Print tables, write their seconds to ``options.out``, and fail as ``options.check`` says."""
    seconds, slow = {}, []
    for table in tables:
        seconds[table.title] = table.seconds
        slow += show(table)
    if options.out:
        options.out.write_text(json.dumps(seconds, indent=2) + "\n")
    if options.check and slow:
        sys.exit(f"too slow: {'; '.join(slow)}")
