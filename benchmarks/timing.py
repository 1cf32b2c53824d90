"""Interleaved timing of contenders, and tables of it."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hosts import write

Step = Callable[[], object]

REFERENCE, COMPILED = "TraceMeanField_ELBO + AutoNormal", ", compiled"


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


@contextmanager
def empty_cache() -> Iterator[None]:
    """Let PyTorch compile in this process as if it had never compiled before."""
    with tempfile.TemporaryDirectory() as cache:
        own = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        os.environ.update(own)
        yield


@contextmanager
def impatient(patience: float) -> Iterator[None]:
    """Raise when patience ends, as soon as Python runs: not within what a framework compiled."""

    def end(*_: Any) -> None:
        raise TimeoutError(f"not waited for beyond {patience:g} s")

    before = signal.signal(signal.SIGALRM, end)
    # again and again: the framework ignores what is raised while it collects its garbage
    signal.setitimer(signal.ITIMER_REAL, patience, 1.0 if patience else 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_processes(function: Callable[..., Any], arguments: Iterable[tuple]) -> Iterator[Any]:
    """Results for all arguments, each from a process of its own: what memory an allocator holds
    ready, and what is compiled, depends on what was there before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        for part in arguments:
            yield pool.apply(function, part)


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
    write(options.out, seconds)
    if options.check and slow:
        sys.exit(f"too slow: {'; '.join(slow)}")
