"""Check of a trained loss, after every fit: its closed form against draws of the guide."""

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

from moment_calculus.errors import LossByDrawsWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.pareto import smooth_weights
from moment_calculus.objectives.data import bb_alpha_energy, log_mean_power
from moment_calculus.optimisation.batches import (
    AllData,
    Arguments,
    LoaderBatches,
    ShuffledBatches,
    rows_of,
)
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import INVALID, ByDraws, Fit

PARTICLES = 32  # of one look at every batch
LOOKS = 32  # largest number of looks
LEAST = 8  # smallest number of particles, however long they take
TOGETHER = 16_000  # particles times rows that are evaluated at once
ROWS = 2000  # of the data, which are checked
TIME_SHARE = 0.1  # of the time of the fit, which the check may take
SECONDS = 1.0  # which the check may always take
SEED = 0
FEWEST_OF_A_TAIL = 128  # smallest number of particles whose largest losses say how their tail falls
SMALLEST = 1e-15  # share of the largest loss below which all losses count as equal


class _Clock:
    """A time limit in seconds, which begins with :meth:`start`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, math.inf

    def start(self) -> None:
        """Start the clock, unless it runs."""
        self.began = min(self.began, time.perf_counter())

    def has_run(self, seconds: float) -> bool:
        """Tell whether the clock has run for more than ``seconds``."""
        return time.perf_counter() > self.began + seconds

    @property
    def is_over(self) -> bool:
        """Tell whether the time limit has passed."""
        return self.has_run(self.seconds)


@dataclass(frozen=True)
class Evaluations:
    """How a front end evaluates a trained objective."""

    # From data, a number of particles and the number of earlier calls to the arguments of
    # ``energy``, with particles on the first axis.
    particles: Callable[[Arguments, int, int], tuple[np.ndarray, ...]]
    # From data and the number of earlier calls to the loss in closed form.
    loss: Callable[[Arguments, int], float]
    is_last: bool  # whether that loss is the last loss of the fit


@dataclass
class _Batch:
    """One batch of the data: its loss in closed form, and the particles drawn for it."""

    data: Arguments
    loss: float
    looks: list[tuple[np.ndarray, ...]]

    def add(self, particles: tuple[np.ndarray, ...]) -> None:
        """Keep a look at particles, unless time ran out before it was as large as the first."""
        if len(particles[0]) == len(self.looks[0][0]):
            self.looks.append(particles)

    def result(self, alpha: float) -> ByDraws:
        """Return the loss by all draws."""
        tail = tail_of(self.looks) if alpha == 0 else 0.0  # which is a mean over particles
        return ByDraws(*pooled_energy(self.looks, alpha=alpha), self.loss, "", tail)


def loss_by_draws(
    fit: Fit,
    objective: Any,
    source: AllData,
    options: Options,
    take: Callable[[Any, Any], Any],  # picks rows of an array
    evaluations_of: Callable[[AllData, bool], Evaluations],  # the flag as ``is_last`` of them
) -> ByDraws:
    """Return the trained loss by draws, of 2000 rows, or of all if the model needs all rows."""
    if reason := why_not_checked(fit, objective, source):
        return ByDraws(note=reason)

    def check(part: AllData) -> ByDraws:
        # The last loss is that of all data, with the parameters of the fit.
        is_last = type(part) is AllData and fit.best is None and options.warm_up is None
        return check_loss(fit, objective, part, evaluations_of(part, is_last))

    *smaller, whole = sources_to_try(source, take)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training has already given these warnings
        for rows in smaller:
            with contextlib.suppress(Exception):  # models may fail in any way on fewer rows
                result = check(rows)
                if not math.isnan(result.loss):
                    return result
        return check(whole)


def check_loss(fit: Fit, objective: Any, source: AllData, evaluations: Evaluations) -> ByDraws:
    """Return the loss by draws, within a tenth of the time of the fit, or one second.

    More than 32 particles are drawn as long as three standard errors exceed one per cent
    of the loss (for at most a tenth of the time), or as draws contradict the loss: with
    exact moments three standard errors are exceeded once in 400 fits. A loss whose mean by
    draws does not settle is contradicted too, if that mean is larger than the closed form.
    """
    call_counter = itertools.count()
    try:
        result = _run_looks(fit, objective, source, evaluations, call_counter)
    except UnsupportedMoments as error:
        return ByDraws(note=f"not run: {error.cause}")
    if not result.is_off:
        return result
    again = [evaluations.loss(next(_batches(source)), next(call_counter)) for _ in range(2)]
    if not math.isclose(*again, rel_tol=1e-5):
        return ByDraws(note="not run: the model draws subsamples, of which every loss has its own")
    return result._replace(note=remedies(objective.propagation.of_guide(fit.guide)))


def _run_looks(
    fit: Fit, objective: Any, source: AllData, evaluations: Evaluations, call_counter: Iterator[int]
) -> ByDraws:
    share = TIME_SHARE * sum(fit.seconds.values())
    clock, batches = _Clock(max(SECONDS, share)), list[_Batch]()
    for data in _batches(source):
        if batches and clock.is_over:
            break
        particles = _draw_particles(evaluations, data, call_counter, clock)
        loss = fit.loss if evaluations.is_last else evaluations.loss(data, next(call_counter))
        batches.append(_Batch(data, loss, [particles]))
    for looks in itertools.count(1):
        result = _mean([batch.result(objective.alpha) for batch in batches])
        enough = result.is_precise or clock.has_run(share)
        if looks == LOOKS or clock.is_over or (enough and not result.is_off):
            break
        for batch in batches:
            batch.add(_draw_particles(evaluations, batch.data, call_counter, clock))
    return result


def _mean(results: list[ByDraws]) -> ByDraws:
    """Return the mean of independent results."""
    values, errors, losses = np.transpose([part[:3] for part in results])
    error = float(np.sqrt(np.sum(errors**2)) / len(errors))
    tail = max(part.tail for part in results)
    return ByDraws(float(values.mean()), error, float(losses.mean()), "", tail)


def sources_to_try(source: AllData, take: Callable[[Any, Any], Any]) -> list[AllData]:
    """Return the sources to check, best first: a mini-batch of 2000 rows if possible, then all."""
    if type(source) is not AllData:
        return [source]
    try:
        rows = rows_of([*source.args, *source.named.values()])
    except ValueError:  # an argument is no array of rows
        return [source]
    few = rows is None or rows <= ROWS
    return (
        [source] if few else [ShuffledBatches(source.args, source.named, ROWS, SEED, take), source]
    )


def why_not_checked(fit: Fit, objective: Any, source: AllData) -> str:
    """Return why a trained loss is not checked by draws; empty if it is."""
    if not getattr(objective, "in_closed_form", False):
        return f"not run: {type(objective).__name__} was not evaluated by moments alone"
    if not fit.losses or not math.isfinite(fit.loss) or INVALID in fit.reason:
        return "not run: the training left no finite loss"
    if isinstance(source, LoaderBatches) and source.last is None:
        return "not run: no mini-batch was loaded"
    return ""


def _batches(source: AllData) -> Iterator[Arguments]:
    """Yield all data, mini-batches of an epoch up to 2000 rows, or the last loaded mini-batch."""
    if isinstance(source, LoaderBatches):
        assert source.last is not None
        yield source.last
    elif isinstance(source, ShuffledBatches):
        for step in range(min(source.per_epoch, max(1, ROWS // source.size))):
            yield source.arguments(step)
    else:
        yield source.arguments(0)


def _draw_particles(
    evaluations: Evaluations, data: Arguments, call_counter: Iterator[int], clock: _Clock
) -> tuple[np.ndarray, ...]:
    """Return particles as arguments of ``energy``, as many as there is time for."""
    rows = rows_of([*data[0], *data[1].values()], whole=False) or 1
    together = min(LEAST, max(1, TOGETHER // max(1, rows)))
    particles: list[tuple[np.ndarray, ...]] = []
    count = 0
    while count < LEAST or (count < PARTICLES and not clock.is_over):
        particles.append(evaluations.particles(data, together, next(call_counter)))
        clock.start()  # after the first particles, whose evaluation may be compiled
        count += together
    return tuple(np.concatenate(part) for part in zip(*particles, strict=True))


def pooled_energy(looks: Sequence[tuple[np.ndarray, ...]], *, alpha: float) -> tuple[float, float]:
    """Return the energy of all looks together, and its standard error."""
    # A jackknife of groups: one particle of each look makes a group.
    data, latent, scale = (np.stack(part) for part in zip(*looks, strict=True))
    return jackknife(log_mean_power(data, alpha), latent.mean(0), scale[0], alpha=alpha)


def tail_of(looks: Sequence[tuple[np.ndarray, ...]]) -> float:
    """Return the Pareto shape k̂ of the largest losses of single particles; zero of few."""
    data, latent, scale = (np.concatenate(part) for part in zip(*looks, strict=True))
    losses = -data.reshape(len(data), -1).sum(1) * scale[0] - latent
    above = losses - np.median(losses)
    if len(losses) < FEWEST_OF_A_TAIL or not np.isfinite(above).all() or not above.max() > 0:
        return 0.0
    return float(smooth_weights(np.log(np.maximum(above, above.max() * SMALLEST))).shape)


def jackknife(
    data: np.ndarray, latent: np.ndarray, scale: np.ndarray, *, alpha: float
) -> tuple[float, float]:
    """Return an energy without its bias of O(1/K), and its standard error, from K particles.

    Source: Efron 1982, chapters 2 and 3. The mean of α = 0 has no bias.
    """
    whole, count = float(bb_alpha_energy(data, latent, scale, alpha)), len(data)
    if not np.isfinite(whole):
        return whole, np.nan
    others = ~np.eye(count, dtype=bool)
    without = np.array([bb_alpha_energy(data[k], latent[k], scale[k], alpha) for k in others])
    value = count * whole - (count - 1) * without.mean()
    return float(value), float(np.sqrt((count - 1) * without.var()))


def remedies(propagation: Any) -> str:
    """Return the options that may bring moments and draws together."""
    finer = {"diagonal": ("backward", "full"), "backward": ("full",)}
    others = [f'covariance="{name}"' for name in finer.get(propagation.covariance, ())]
    coarse = propagation.categorical in ("delta", "jensen")
    classes = ['for classes categorical="points"'] if coarse else []
    return " or ".join([*others, *classes, 'propagation="sampled"'])


def warn_if_off(result: ByDraws) -> None:
    """Warn of a loss that draws do not confirm, at the user's line."""
    if result.is_off:
        warn_user(
            f"the loss is {result}: an approximation on the way is off, and the optimum may be "
            f"too; use {result.note}; moment_accuracy shows which layer is off, by_draws=False "
            "leaves this check out",
            LossByDrawsWarning,
        )
