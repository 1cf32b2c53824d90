"""Seconds of Newton's method or L-BFGS against those of the host's NUTS, on the same models.

Both run in one process and in double precision, the fit first, so that what the host compiles once
in a process counts as the fit's. NUTS draws four chains, one after the other.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import hosts
from posteriors_models import Posterior
from timing import impatient

from moment_calculus.optimisation.minimiser import METHODS
from moment_calculus.optimisation.outcome import Outcome
from moment_calculus.optimisation.rounds import DeterministicLoss

CHAINS, DRAWS = 4, 1000  # warm-up and sampling each
LIMIT, COMPILED_LIMIT = 0.5, 0.05  # of NUTS' seconds
LEAST, OF = 24, 27  # posteriors within them
PATIENCE = 10  # times what decides against NUTS: it is not waited for much longer
HEADINGS = ("fit", "steps", "NUTS", "compiled", "ratio", "compiled")


@dataclass(frozen=True)
class Elapsed:
    """Seconds of something; a lower bound if it was not waited for."""

    seconds: float
    ended: bool = True

    def __str__(self) -> str:
        return f"{'' if self.ended else '>'}{self.seconds:.3f}"


def compared_with_nuts(host: ModuleType, posteriors: list[Posterior], method: str) -> str:
    """How a method falls short of what it should take of NUTS' time; empty if it does not."""
    print(f"{'posterior':46s} {_row(HEADINGS)}")
    within = sum(_within(host, each, method) for each in posteriors)
    print(f"{within} of {len(posteriors)} within {LIMIT} and, compiled, {COMPILED_LIMIT} of NUTS")
    return "too slow beside NUTS" if within * OF < LEAST * len(posteriors) else ""


def trained(host: ModuleType, posterior: Posterior, method: str) -> Any:
    """The fit of a posterior in double precision."""
    with host.doubles():
        return hosts.fitted(host, posterior.model(host), method=method, float64=True)


def _within(host: ModuleType, posterior: Posterior, method: str) -> bool:
    """Whether a fit converges within the limits; prints a row."""
    make = partial(posterior.model, host)
    fit, *ours = _timed(partial(trained, host, posterior, method), method)
    nuts = [_elapsed(partial(host.nuts, make, CHAINS, DRAWS), PATIENCE * ours[0] / LIMIT)]
    if compiled := host.compiled_nuts(make, CHAINS, DRAWS):
        nuts.append(_elapsed(compiled, PATIENCE * ours[1] / COMPILED_LIMIT))
    ratios = [mine / theirs.seconds for mine, theirs in zip(ours, nuts, strict=False)]
    bounds = ["" if each.ended else "<" for each in nuts]
    shown = [f"{bound}{ratio:.3f}" for bound, ratio in zip(bounds, ratios, strict=True)]
    cells = [*(f"{mine:.3f}" for mine in ours), *_padded(nuts), *_padded(shown)]
    pairs = zip(ratios, (LIMIT, COMPILED_LIMIT), strict=False)
    within = fit.converged and all(ratio <= limit for ratio, limit in pairs)
    print(f"{posterior.name:46s} {_row(cells)}  {'' if within else 'exceeds'}", flush=True)
    return within


def _padded(cells: list[Any]) -> list[str]:
    """With and without compiling, where there is the difference."""
    return [*map(str, cells), "-"][:2]


def _row(cells: Iterable[str]) -> str:
    return " ".join(f"{cell:>9s}" for cell in cells)


def _elapsed(run: Callable[[], Any], patience: float) -> Elapsed:
    """Seconds of a run, or a lower bound when patience ends."""
    start, ended = time.perf_counter(), True
    try:
        with impatient(patience):
            run()
    except TimeoutError:
        ended = False
    return Elapsed(time.perf_counter() - start, ended)


def _timed(train: Callable[[], Any], method: str) -> tuple[Any, float, float]:
    """What a training gives, its seconds, and those of its steps with what it has compiled."""
    minimise, again = METHODS[method], []

    def twice(objective: DeterministicLoss, outcome: Outcome, *arguments: Any) -> Any:
        same = copy.deepcopy(outcome)
        result, start = minimise(objective, outcome, *arguments), time.perf_counter()
        minimise(objective, same, *arguments)
        again.append(time.perf_counter() - start)
        return result

    with patch.dict(METHODS, {method: twice}):
        start = time.perf_counter()
        result = train()
        return result, time.perf_counter() - start - again[0], again[0]
