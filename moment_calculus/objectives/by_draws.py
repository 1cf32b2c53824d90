"""What a trained loss is by draws: the check of the approximations on the way, after every fit."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.objectives.powers import energy, log_mean_power
from moment_calculus.optimisation.batches import Arguments, Loaded, Shuffled, Whole, rows_of
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import INVALID, ByDraws, Fit
from moment_calculus.refusals.errors import LossByDrawsWarning, UnsupportedMoments

PARTICLES = 32  # of a look
LOOKS = 32  # at most
LEAST = 8  # particles, however long they take
TOGETHER = 16_000  # rows of particles that are run at once
ROWS = 2000  # that are drawn
SHARE = 0.1  # of the time of the fit
SECONDS = 1.0  # which may always be used
SEED = 0


class _Clock:
    """Time that may be taken, once it runs."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, math.inf

    def start(self) -> None:
        """Start it, unless it runs."""
        self.began = min(self.began, time.perf_counter())

    def has_run(self, seconds: float) -> bool:
        """Whether it runs for longer than that."""
        return time.perf_counter() > self.began + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.has_run(self.seconds)


@dataclass(frozen=True)
class Evaluations:
    """How a front end evaluates a trained objective.

    Args:
        particles: draws: of arguments, a number of particles and the number of calls before, it
            makes the arguments of ``energy``, with particles on the first axis.
        loss: the loss of arguments in closed form; it takes the number of calls before as well.
        is_last: whether that is the last loss of the fit.
    """

    particles: Callable[[Arguments, int, int], tuple[np.ndarray, ...]]
    loss: Callable[[Arguments, int], float]
    is_last: bool


@dataclass
class _Batch:
    """Looks at the particles of one batch of the data, and its loss in closed form."""

    data: Arguments
    loss: float
    looks: list[tuple[np.ndarray, ...]]

    def add(self, drawn: tuple[np.ndarray, ...]) -> None:
        """Keep a look, unless its time was over before it was as large as the first."""
        if len(drawn[0]) == len(self.looks[0][0]):
            self.looks.append(drawn)

    def result(self, alpha: float) -> ByDraws:
        """The loss by all draws."""
        return ByDraws(*pooled(self.looks, alpha=alpha), self.loss, "")


def checked(fit: Fit, objective: Any, source: Whole, evaluations: Evaluations) -> ByDraws:
    """The loss by draws, within a tenth of the time of the fit, or one second.

    Eight particles are drawn in any case; the clock starts after the first, which are compiled. Of
    mini-batches as many are taken as have 2000 rows together. After 32 particles others are added,
    as long as three standard errors exceed the one per cent that is looked for, which may take a
    tenth of the time, or as draws contradict the loss: of exact moments three standard errors are
    exceeded once in 400 fits.

    Args:
        fit: the trained guide.
        objective: that it was trained by.
        source: of the data.
        evaluations: of the trained objective.
    """
    turns = itertools.count()
    try:
        found = _looked(fit, objective, source, evaluations, turns)
    except UnsupportedMoments as refusal:
        return ByDraws(note=f"not run: {refusal.cause}")
    if not found.is_off:
        return found
    again = [evaluations.loss(next(_batches(source)), next(turns)) for _ in range(2)]
    if not math.isclose(*again, rel_tol=1e-5):
        return ByDraws(note="not run: the model draws subsamples, of which every loss has its own")
    return found._replace(note=remedies(objective.propagation))


def _looked(
    fit: Fit, objective: Any, source: Whole, evaluations: Evaluations, turns: Iterator[int]
) -> ByDraws:
    share = SHARE * sum(fit.seconds.values())
    clock, batches = _Clock(max(SECONDS, share)), list[_Batch]()
    for data in _batches(source):
        if batches and clock.is_over:
            break
        drawn = _drawn(evaluations, data, turns, clock)
        loss = fit.loss if evaluations.is_last else evaluations.loss(data, next(turns))
        batches.append(_Batch(data, loss, [drawn]))
    for looks in itertools.count(1):
        found = _mean([batch.result(objective.alpha) for batch in batches])
        enough = found.is_precise or clock.has_run(share)
        if looks == LOOKS or clock.is_over or (enough and not found.is_off):
            break
        for batch in batches:
            batch.add(_drawn(evaluations, batch.data, turns, clock))
    return found


def _mean(found: list[ByDraws]) -> ByDraws:
    """The mean of independent values."""
    values, errors, losses = np.transpose([part[:3] for part in found])
    error = float(np.sqrt(np.sum(errors**2)) / len(errors))
    return ByDraws(float(values.mean()), error, float(losses.mean()), "")


def attempts(source: Whole, take: Callable[[Any, Any], Any]) -> list[Whole]:
    """What of the data is drawn, as a mini-batch if 2000 rows can be cut out; the best first.

    Args:
        source: of the data.
        take: picks rows of an array.
    """
    if type(source) is not Whole:
        return [source]
    try:
        rows = rows_of([*source.args, *source.named.values()])
    except ValueError:  # what is no array of rows
        return [source]
    few = rows is None or rows <= ROWS
    return [source] if few else [Shuffled(source.args, source.named, ROWS, SEED, take), source]


def first_possible(source: Whole, take: Callable, check: Callable[[Whole], ByDraws]) -> ByDraws:
    """The check of 2000 rows; of all data where the model does not run on fewer.

    Args:
        source: of the data.
        take: picks rows of an array.
        check: of data from a source.
    """
    *cut, whole = attempts(source, take)
    for part in cut:
        with contextlib.suppress(Exception):  # whatever a model says of fewer rows than it has
            return check(part)
    return check(whole)


def reason_against(fit: Fit, objective: Any, source: Whole) -> str:
    """Why a trained loss is not drawn; empty if it is.

    Args:
        fit: the trained guide.
        objective: that it was trained by.
        source: of the data.
    """
    if not getattr(objective, "in_closed_form", False):
        return f"not run: {type(objective).__name__} was not evaluated by moments alone"
    if not fit.losses or not math.isfinite(fit.loss) or INVALID in fit.reason:
        return "not run: the training left no finite loss"
    if isinstance(source, Loaded) and source.last is None:
        return "not run: no mini-batch was loaded"
    return ""


def _batches(source: Whole) -> Iterator[Arguments]:
    """All data, mini-batches of an epoch up to 2000 rows, or the last one that was loaded."""
    if isinstance(source, Loaded):
        assert source.last is not None
        yield source.last
    elif isinstance(source, Shuffled):
        for step in range(min(source.per_epoch, max(1, ROWS // source.size))):
            yield source.arguments(step)
    else:
        yield source.arguments(0)


def is_last(fit: Fit, source: Whole, options: Options) -> bool:
    """Whether the last loss is that of all data, with the parameters of the fit.

    Args:
        fit: the trained guide.
        source: of the data.
        options: of the fit.
    """
    return type(source) is Whole and fit.best is None and options.warm_up is None


def _drawn(
    evaluations: Evaluations, data: Arguments, turns: Iterator[int], clock: _Clock
) -> tuple[np.ndarray, ...]:
    """Particles as arguments of ``energy``, as many as there is time for."""
    rows = rows_of([*data[0], *data[1].values()], whole=False) or 1
    together = min(LEAST, max(1, TOGETHER // max(1, rows)))
    parts: list[tuple[np.ndarray, ...]] = []
    count = 0
    while count < LEAST or (count < PARTICLES and not clock.is_over):
        parts.append(evaluations.particles(data, together, next(turns)))
        clock.start()
        count += together
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def pooled(looks: Sequence[tuple[np.ndarray, ...]], *, alpha: float) -> tuple[float, float]:
    """The energy of all looks together, and its standard error, by a jackknife of groups.

    Args:
        looks: as many particles each, as of ``jackknife``; one of each look makes a group.
        alpha: the power.
    """
    data, latent, scale = (np.stack(part) for part in zip(*looks, strict=True))
    return jackknife(log_mean_power(data, alpha), latent.mean(0), scale[0], alpha=alpha)


def jackknife(
    data: np.ndarray, latent: np.ndarray, scale: np.ndarray, *, alpha: float
) -> tuple[float, float]:
    """An energy without its bias of O(1/K), and its standard error.

    Args:
        data: log-densities of K particles, [K, ...].
        latent: what the latent sites contribute, [K].
        scale: how many data each stands for, [K].
        alpha: the power; the mean of α = 0 has no bias.

    Source: Efron 1982, chapters 2 and 3.
    """
    whole, count = float(energy(data, latent, scale, alpha)), len(data)
    if not np.isfinite(whole):
        return whole, np.nan
    others = ~np.eye(count, dtype=bool)
    without = np.array([energy(data[k], latent[k], scale[k], alpha) for k in others])
    value = count * whole - (count - 1) * without.mean()
    return float(value), float(np.sqrt((count - 1) * without.var()))


def remedies(propagation: Any) -> str:
    """What may bring moments and draws together.

    Args:
        propagation: settings of the objective.
    """
    full = ['covariance="full"'] if propagation.covariance == "diagonal" else []
    coarse = propagation.categorical in ("delta", "jensen")
    classes = ['for classes categorical="points"'] if coarse else []
    return " or ".join([*full, *classes, 'propagation="sampled"'])


def warn_if_off(found: ByDraws) -> None:
    """Warn of a loss that draws do not confirm, at the line that called the caller.

    Args:
        found: by draws.
    """
    if found.is_off:
        warnings.warn(
            f"the loss is {found}: an approximation on the way is off, and the optimum may be too; "
            f"use {found.note}; moment_accuracy shows which layer "
            "is off, by_draws=False leaves this check out",
            LossByDrawsWarning,
            stacklevel=3,
        )
