"""Check of a trained loss, after every fit: its closed form against draws of the guide."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.errors import LossByDrawsWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.pareto import tail_of_mean
from moment_inference.objectives.data_plates import bb_alpha_energy, log_mean_power
from moment_inference.optimisation.batches import (
    AllData,
    Arguments,
    LoaderBatches,
    ShuffledBatches,
    rows_of,
)
from moment_inference.optimisation.options import Options
from moment_inference.optimisation.outcome import (
    AGREES,
    CANNOT_TELL,
    INVALID,
    NOT_RUN,
    ByDraws,
    Fit,
)

LEAST = 16  # smallest number of particles of a look, however long they take
PARTICLES = 512  # largest number of a look at every batch
ENOUGH = 1000  # particles that may settle it; fewer only where time is over
MOST = 200_000  # particles
TOGETHER = 16_000  # particles times rows that are evaluated at once
PARAMETERS = 2**24  # particles times parameters of the guide that are drawn at once
ROWS = 2000  # of the data, which are checked
TIME_SHARE = 0.1  # of the time of the fit, which the check may take
SECONDS = 2.0  # of the processor, which the check may always take
LOOKS = 20  # looks that the time should suffice for
SEED = 0
FEWEST_OF_A_TAIL = 128  # smallest number of particles whose largest losses say how their tail falls


class _Clock:
    """A time limit in seconds of the processor."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, time.process_time()

    @property
    def spent(self) -> float:
        """The seconds since the clock was made."""
        return time.process_time() - self.began

    @property
    def is_over(self) -> bool:
        """Tell whether the time limit has passed."""
        return self.spent > self.seconds


@dataclass(frozen=True)
class Evaluations:
    """How a front end evaluates a trained objective."""

    # From data, a number of particles and the number of earlier calls to the arguments of
    # ``energy``, with particles on the first axis.
    particles: Callable[[Arguments, int, int], tuple[np.ndarray, ...]]
    # From data and the number of earlier calls to the loss in closed form.
    loss: Callable[[Arguments, int], float]
    is_last: bool  # whether that loss is the last loss of the fit
    compiles: bool = False  # whether another number of particles is compiled anew


@dataclass
class Batch:
    """One batch of the data: its loss in closed form, and the particles drawn for it."""

    data: Arguments
    loss: float
    alpha: float
    looks: list[Look]

    @property
    def count(self) -> int:
        """The number of particles."""
        return sum(look.count for look in self.looks)

    def result(self) -> ByDraws:
        """Return the loss by all draws."""
        latent = np.concatenate([look.latent for look in self.looks])
        log_likelihood = -self.loss - float(latent.mean())
        if self.alpha == 0:
            value, error, *tail = mean_of(np.concatenate([look.losses for look in self.looks]))
        else:  # the mean of powers, which a density bounds
            (value, error), tail = pooled_energy(self.looks, alpha=self.alpha), [0.0, 0.0]
        return ByDraws(value, error, self.loss, "", tail[0], log_likelihood, tail[1])


class Look:
    """The particles of one look: their losses, and groups of them."""

    def __init__(self, particles: tuple[np.ndarray, ...], alpha: float) -> None:
        data, self.latent, scale = particles
        self.count, self.scale = len(data), float(scale[0])
        self.losses = -data.reshape(len(data), -1).sum(1) * self.scale - self.latent
        # One log-mean of powers for each of LEAST groups, of each datum.
        self.data = log_mean_power(data.reshape(-1, LEAST, *data.shape[1:]), alpha)
        self.of_groups = self.latent.reshape(-1, LEAST).mean(0)


def mean_of(losses: np.ndarray) -> tuple[float, float, float, float]:
    """Return the mean of losses, its standard error, the shape k̂ of their tail, and its error."""
    mean, error = float(losses.mean()), float(losses.std()) / len(losses) ** 0.5
    if not np.isfinite(losses).all():
        return mean, error, 0.0, 0.0
    if len(losses) < FEWEST_OF_A_TAIL:  # the error of a shape of zero, which is not known
        return mean, error, 0.0, (5 / len(losses)) ** 0.5
    tail, tail_error, unseen = tail_of_mean(losses)
    return mean, math.hypot(error, unseen), tail, tail_error


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
        return check_loss(fit, objective, part, evaluations_of(part, is_last), options.by_draws)

    *smaller, whole = sources_to_try(source, take)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training has already given these warnings
        for rows in smaller:
            with contextlib.suppress(Exception):  # models may fail in any way on fewer rows
                result = check(rows)
                if not math.isnan(result.loss):
                    return result
        return check(whole)


def check_loss(
    fit: Fit,
    objective: Any,
    source: AllData,
    evaluations: Evaluations,
    seconds: bool | float = True,
) -> ByDraws:
    """Return the loss by draws, within a tenth of the time of the fit, or two seconds.

    Particles are drawn until they agree with the closed form or contradict it, or time is
    over: then they cannot tell.
    """
    call_counter = itertools.count()
    try:
        draw = _Drawing(fit, objective.alpha, evaluations, call_counter, _time_of(fit, seconds))
        result = _run_looks(fit, source, draw)
    except UnsupportedMoments as error:
        return ByDraws(note=f"not run: {error.cause}")
    if result.answer == AGREES:
        return result
    again = [evaluations.loss(next(_batches(source)), next(call_counter)) for _ in range(2)]
    if not math.isclose(*again, rel_tol=1e-5):
        return ByDraws(note="not run: the model draws subsamples, of which every loss has its own")
    propagation = objective.propagation.of_guide(fit.guide)
    return result._replace(note=remedies(result, propagation, objective.alpha))


def _time_of(fit: Fit, seconds: bool | float) -> float:
    """Return the seconds that a check may take, as of ``Options.by_draws``."""
    share = TIME_SHARE * sum(fit.seconds.values())
    return max(SECONDS, share) if seconds is True else float(seconds)


def _run_looks(fit: Fit, source: AllData, draw: _Drawing) -> ByDraws:
    evaluations, clock, batches = draw.evaluations, draw.clock, list[Batch]()
    for data in _batches(source):
        if batches and clock.is_over:
            break
        look = draw(data)
        loss = fit.loss if evaluations.is_last else evaluations.loss(data, next(draw.call_counter))
        batches.append(Batch(data, loss, draw.alpha, [look]))
    while True:
        result = _mean([batch.result() for batch in batches])
        count = sum(batch.count for batch in batches)
        settled = result.answer != CANNOT_TELL and count >= ENOUGH
        if settled or clock.is_over or count >= MOST:
            return result
        for batch in batches:
            batch.looks.append(draw(batch.data))


def _elements(parameters: Any) -> int:
    """Return the number of elements of parameters, in nested dictionaries."""
    if isinstance(parameters, Mapping):
        return sum(map(_elements, parameters.values()))
    return math.prod(getattr(parameters, "shape", ()))


def _mean(results: list[ByDraws]) -> ByDraws:
    """Return the mean of independent results."""
    values, errors, losses = np.transpose([part[:3] for part in results])
    error = float(np.sqrt(np.sum(errors**2)) / len(errors))
    heaviest = max(results, key=lambda part: part.tail)
    log_likelihood = float(np.mean([part.log_likelihood for part in results]))
    return heaviest._replace(
        value=float(values.mean()),
        standard_error=error,
        loss=float(losses.mean()),
        log_likelihood=log_likelihood,
    )


def sources_to_try(source: AllData, take: Callable[[Any, Any], Any]) -> list[AllData]:
    """Return the sources to check, best first: a mini-batch of 2000 rows if possible, then all."""
    if type(source) is not AllData:
        return [source]
    try:
        rows = rows_of([*source.args, *source.kwargs.values()])
    except ValueError:  # an argument is no array of rows
        return [source]
    few = rows is None or rows <= ROWS
    return (
        [source] if few else [ShuffledBatches(source.args, source.kwargs, ROWS, SEED, take), source]
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


class _Drawing:
    """Draws looks of as many particles as there is time and memory for."""

    def __init__(
        self,
        fit: Fit,
        alpha: float,
        evaluations: Evaluations,
        call_counter: Iterator[int],
        seconds: float,
    ) -> None:
        self.alpha, self.evaluations = alpha, evaluations
        self.call_counter, self.clock = call_counter, _Clock(seconds)
        self.count = PARTICLES if evaluations.compiles else LEAST  # of the next look
        self.most = PARAMETERS // max(1, _elements(fit.params))  # that memory has room for

    def __call__(self, data: Arguments) -> Look:
        """Return a look at a batch."""
        rows = rows_of([*data[0], *data[1].values()], whole=False) or 1
        most = max(1, min(self.most, TOGETHER // max(1, rows)))
        count = max(LEAST, min(self.count, most // LEAST * LEAST))
        together = min(count, most)
        began, parts = self.clock.spent, list[tuple[np.ndarray, ...]]()
        while sum(len(part[0]) for part in parts) < count:
            turn = next(self.call_counter)
            parts.append(self.evaluations.particles(data, together, turn))
        if not self.evaluations.compiles:
            next_count = count * self.clock.seconds / LOOKS / max(self.clock.spent - began, 1e-6)
            self.count = int(min(PARTICLES, max(LEAST, next_count // LEAST * LEAST)))
        joined = (np.concatenate(part)[:count] for part in zip(*parts, strict=True))
        return Look(tuple(joined), self.alpha)


def pooled_energy(looks: Sequence[Look], *, alpha: float) -> tuple[float, float]:
    """Return the energy of all looks together, and its standard error by groups of particles."""
    counts = np.array([look.count for look in looks])
    weights = np.log(counts / counts.mean()).reshape(-1, *[1] * looks[0].data.ndim)
    data = log_mean_power(np.stack([look.data for look in looks]) + weights / alpha, alpha)
    latent = np.average([look.of_groups for look in looks], axis=0, weights=counts)
    return jackknife(data, latent, np.full(LEAST, looks[0].scale), alpha=alpha)


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


def remedies(result: ByDraws, propagation: Any, alpha: float) -> str:
    """Return what may bring moments and draws together, or tell more."""
    more = result.answer == CANNOT_TELL and result.may_agree
    longer = ["by_draws=60, the seconds that the check may take,"] if more else []
    finer = {"diagonal": ("backward", "full"), "backward": ("full",)}
    others = [f'covariance="{name}"' for name in finer.get(propagation.covariance, ())]
    coarse = propagation.categorical in ("delta", "jensen")
    classes = ['for classes categorical="points"'] if coarse else []
    bounded = [
        "objective=BBAlphaELBO(alpha=1), which has no such tail, in two to three times the time"
    ]
    others += [*classes, *(bounded if alpha == 0 else []), 'propagation="sampled"']
    return " or ".join([*longer, *others])


def warn_unless_confirmed(result: ByDraws) -> None:
    """Warn of a loss that draws do not confirm, at the user's line."""
    if result.answer in (AGREES, NOT_RUN):
        return
    cause = "an approximation on the way is off, and the optimum may be too"
    if result.answer == CANNOT_TELL:
        cause = (
            "they are neither close enough to confirm it nor far enough to refute it, or too few, "
            "or their tail is too heavy"
        )
    warn_user(
        f"the loss is {result}: {cause}; use {result.note}; moment_accuracy shows which layer is "
        "off, by_draws=False leaves this check out",
        LossByDrawsWarning,
    )
