"""Results of a training: losses, why it stopped, and the check of the loss by draws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from moment_inference.optimisation.summary import site_table

INVALID = "a parameter left what it is constrained to"
RECENT = 100  # losses of mini-batches that are averaged for a comparison
TOLERANCE = 0.5  # nats of E log p that count as equal, and
TOLERATED_SHARE = 0.02  # this share of it, if that is more
CLOSE = 0.5  # share of that tolerance within which a loss is confirmed
ERRORS_TO_AGREE, ERRORS_TO_CONTRADICT = 2.0, 3.0  # standard errors
RELIABLE_TAIL = 0.7  # Pareto shape up to which a mean converges (Vehtari et al. 2024)
WITHOUT_VARIANCE = 0.5  # Pareto shape from which a distribution has no variance
LARGEST_TAIL = 1.0  # Pareto shape from which a distribution has no mean, and
CERTAIN_TAIL = 1.2  # with the error of an estimated shape
AGREES, CONTRADICTS, CANNOT_TELL, NOT_RUN = "agrees", "contradicts", "cannot tell", "not run"


class ByDraws(NamedTuple):
    """The loss by draws of the guide, beside its closed form."""

    value: float = math.nan  # the loss by draws; NaN if they were not run
    # Monte Carlo standard error of ``value``, with what the tail of the draws, a generalised
    # Pareto distribution, has beyond the largest of them; infinite where there is no mean
    standard_error: float = math.nan
    loss: float = math.nan  # the closed form, of the same rows of data
    # Why draws were not run; remedies where they do not confirm the closed form.
    note: str = "not run, as by_draws=False"
    tail: float = 0.0  # Pareto shape k̂ of the largest losses of single draws; from 1, no mean
    log_likelihood: float = math.nan  # E log p of the data in closed form
    tail_error: float = 0.0  # standard error of ``tail``

    @property
    def answer(self) -> str:
        """Return "agrees", "contradicts", "cannot tell" or "not run".

        Draws agree if the loss differs by less than the larger of a quarter of a nat and
        1 % of E log p, and their tail lets a mean converge, both also two standard errors
        further off. They contradict if it differs by more than twice that and by more than
        three standard errors, or if the mean of the draws is larger by that much and rises
        with every further draw, for their tail has no mean. Draws of a tail without a
        variance are mostly below their mean, and do not contradict from below.
        """
        if math.isnan(self.loss):
            return NOT_RUN
        difference, reach = abs(self.value - self.loss), ERRORS_TO_AGREE * self.standard_error
        tail = self.tail + ERRORS_TO_AGREE * self.tail_error
        if difference + reach <= CLOSE * self.tolerance and tail <= RELIABLE_TAIL:
            return AGREES
        has_no_mean = self.tail >= CERTAIN_TAIL and self.value > self.loss
        is_certain = difference > ERRORS_TO_CONTRADICT * self.standard_error and (
            self.value > self.loss or self.tail < WITHOUT_VARIANCE
        )
        # a value that is not finite is not below the tolerance
        if not difference <= self.tolerance and (
            has_no_mean or is_certain or not math.isfinite(self.value)
        ):
            return CONTRADICTS
        return CANNOT_TELL

    @property
    def may_agree(self) -> bool:
        """Return whether more draws may confirm the loss."""
        difference, reach = abs(self.value - self.loss), ERRORS_TO_AGREE * self.standard_error
        return difference - reach <= CLOSE * self.tolerance and self.tail < LARGEST_TAIL

    @property
    def tolerance(self) -> float:
        """Return the nats that draws must differ by to contradict; to agree, half of them."""
        nats = 0.0 if math.isnan(self.log_likelihood) else abs(self.log_likelihood)
        return max(TOLERANCE, TOLERATED_SHARE * nats)

    def __str__(self) -> str:
        """Describe the check in words."""
        if math.isnan(self.loss):
            return f"by draws: {self.note}"
        no_mean = self.tail >= LARGEST_TAIL
        tail = f" (with a tail of shape {self.tail:.2g}: no mean)" if no_mean else ""
        # Both are perhaps of fewer rows than the fit.
        return (
            f"by draws {self.value:.5g} ± {self.standard_error:.2g}{tail}, by moments "
            f"{self.loss:.5g}: {self.answer}"
        )


STRONG = 0.05  # nats from which independent coordinates misplace means; see docs/experiments


class Dependence(NamedTuple):
    """What is left of the slope after one natural step with covariances between all sites."""

    left: float = math.nan  # half its square in the Fisher metric, nats; NaN if not known
    sites: tuple[str, ...] = ()  # with most of it, the first with the largest part
    reason: str = ""  # why it is not known

    @property
    def is_strong(self) -> bool:
        """Return whether independent coordinates misplace means."""
        return self.left > STRONG

    def __str__(self) -> str:
        """Return the advice; nothing where dependence moves no means."""
        if not self.is_strong:
            return ""
        within = "of" if len(self.sites) > 1 else "within"
        return (
            f"the means {within} {', '.join(self.sites)} lean on each other ({self.left:.2g} > "
            f"{STRONG:g} nats left): use GaussianGuide()"
        )


UNBOUNDED = (
    "the loss is -inf: it has no lower bound; a guide's scale grows where no prior counts (a mask, "
    "handlers.block), or a scale of the noise goes to zero: give these sites a prior"
)


@dataclass
class Course:
    """The course of a training so far."""

    losses: list[float] = field(default_factory=list)  # by step, of its batch
    steps: int = 0  # number of steps made
    converged: bool = False  # whether it stopped because nothing is left to gain
    reason: str = ""  # why it stopped, in words; empty while it goes on
    change: float | None = None  # relative change of the loss at the end
    decrement: float | None = None  # ½ gᵀ H⁻¹ g, in nats
    held_out: dict[int, float] = field(default_factory=dict)  # by steps before
    best: int | None = None  # number of steps at the best of these
    saddles: int = 0  # how many saddles it stepped off

    @property
    def loss(self) -> float:
        """The last loss."""
        return self.losses[-1]

    def stop(self, converged: bool, why: str) -> None:
        """Write down why the training stopped.

        Args:
            converged: whether nothing is left to gain.
            why: the reason, in words; an infinite loss is a reason of its own.
        """
        if self.losses and math.isinf(self.loss):
            converged, why = False, UNBOUNDED if self.loss < 0 else "the loss is inf"
        self.converged = converged
        self.reason = f"{'converged' if converged else 'stopped'}: {why}"

    def fit(self, guide: Any, params: dict[str, Any], started: float, prepared: float) -> Fit:
        """Return the result for the user.

        Args:
            guide: the guide.
            params: its parameters.
            started: when the preparations began, by ``time.perf_counter``.
            prepared: when they were done.
        """
        seconds = {"preparing": prepared - started, "fitting": time.perf_counter() - prepared}
        course = {name: getattr(self, name) for name in Course.__dataclass_fields__}
        return Fit(**course, guide=guide, params=params, seconds=seconds)


@dataclass
class Outcome(Course):
    """The course of a deterministic method, and its present parameters."""

    point: np.ndarray = field(default_factory=lambda: np.zeros(0))  # parameters, flat
    first_full_step: int | None = None  # step with which all parameters begin to move
    has_small_decrement: bool = False  # whether the Newton decrement showed convergence


class FitVerbs(NamedTuple):
    """What a framework's front end does with a fit."""

    predict: Callable[..., dict[str, Any]]  # of model, fit, arguments and options
    save: Callable[..., None]  # to path, of model, fit and arguments
    of_guide: Callable[..., dict[str, Any]]  # of a fit: calls a method of its guide, by name
    to_numpy: Callable[[Any], np.ndarray]  # of an array of the framework


@dataclass(kw_only=True, repr=False)
class Fit(Course):
    """A trained guide, and how its training went.

    Args:
        guide: the guide.
        params: its parameters and the model's by name, in the framework's conventions.
        seconds: wall-clock time by part: ``"preparing"`` (initialising, compiling) and
            ``"fitting"``.
        losses: negative ELBO at the start and after every step; with mini-batches before
            every step, of its batch.
        steps: number of steps.
        converged: whether the training stopped because nothing was left to gain.
        reason: why it stopped, in words.
        change: relative change of the loss at the end; None for methods that do not look
            at it.
        decrement: Newton decrement at the end, in nats; None for methods that do not
            compute it.
        held_out: held-out log-likelihood by the number of steps before it.
        best: number of steps after which it was highest; ``params`` are those after these
            steps.
        saddles: how many saddles the training stepped off, along a negative curvature.
        by_draws: the loss by draws of the trained guide, or why there is none.
        model: the model; no file and no pickle has it.
        objective: what it was trained by, with its options; predictions, linear response and
            diagnoses go by it.
        sites: what ``save`` writes of the model's sites, from the arguments of the training or
            of their shapes; None if it is not known.
        held: the sites whose terms are integrated by held draws, the ``number`` of draws and
            their ``error``; None where all is in closed form.
    """

    guide: Any
    params: dict[str, Any] = field(repr=False)
    seconds: dict[str, float]
    losses: list[float] = field(repr=False, default_factory=list)
    by_draws: ByDraws = field(default_factory=ByDraws)
    context: Any = field(repr=False, default=None)  # puts ``params`` in their places (Pyro)
    model: Any = field(repr=False, default=None)
    verbs: FitVerbs | None = field(repr=False, default=None)
    objective: Any = field(repr=False, default=None)
    sites: Any = field(repr=False, default=None)
    held: Any = field(repr=False, default=None)
    # of the fit; None for one that does not know its data
    measured_dependence: Callable[[Fit], Dependence] | None = field(repr=False, default=None)

    @cached_property
    def dependence(self) -> Dependence:
        """Whether the means lean on each other, so that a mean-field guide misplaces them.

        One natural step is made from the optimum of a guide of independent coordinates, with
        covariances between all of them, up to 500: ``left`` is half the square of the slope
        after it in nats, ``is_strong`` whether that is above 0.05, ``sites`` are those with
        most of it. It is computed when it is first asked for, also by ``print``. Other fits
        have NaN, and ``reason`` says why.
        """
        if not self.converged:
            return Dependence(reason="the fit has not converged")
        if self.measured_dependence is None:
            return Dependence(reason="this fit does not know its data: it was loaded")
        return self.measured_dependence(self)

    def __repr__(self) -> str:
        """Return the loss, its check, the time and why the training ended."""
        seconds = ", ".join(f"{seconds:.2f} {part}" for part, seconds in self.seconds.items())
        trained = f"loss {self.loss:.6g} after {self.steps} steps" if self.losses else "loaded"
        lines = (
            f"Fit of {type(self.guide).__name__}: {trained}",
            str(self.by_draws) if self.losses else "",
            str(self.held or ""),
            str(self.dependence) if self.losses else "",
            self.reason,
            f"seconds: {seconds}" if seconds else "",
        )
        return "\n  ".join(line for line in lines if line)

    def with_model(self, model: Callable, verbs: FitVerbs) -> Fit:
        """Return the fit itself, which from now on knows its model; no file has it."""
        self.model, self.verbs = model, verbs
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fit without the model."""
        return {**self.__dict__, "model": None, "verbs": None, "measured_dependence": None}

    def predict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Predict what the model observes, as the function ``predict`` does.

        Args:
            *args: arguments of the model, with new inputs.
            **options: of ``predict``, and arguments of the model by name.

        Returns:
            By site what ``predict(model, result, *args)`` returns.

        Raises:
            ValueError: if the fit was unpickled, and so does not know its model.

        Example:
            >>> result.predict(x_test)["y"].interval(0.9)  # doctest: +SKIP
        """
        return self._verbs("predict").predict(self.model, self, *args, **options)

    def save(self, path: Any, *data: Any, **named: Any) -> None:
        """Write the trained parameters into one file, as the function ``save`` does.

        Args:
            path: the file.
            *data: arguments of model and guide, if not those of the training.
            **named: its keyword arguments.

        Raises:
            ValueError: if the fit was unpickled, and so does not know its model.
        """
        self._verbs("save").save(path, self.model, self, *data, **named)

    def median(self) -> dict[str, Any]:
        """Medians of the posterior.

        Returns:
            Arrays by latent site, on its support.

        Raises:
            TypeError: if the guide has no medians.
            ValueError: if the fit was unpickled.
        """
        check_fit(self, "median")
        return self._verbs("median").of_guide(self, "median")

    def quantiles(self, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> dict[str, Any]:
        """Quantiles of the posterior.

        Args:
            levels: probabilities between 0 and 1.

        Returns:
            Arrays [levels, ...] by latent site, on its support.

        Raises:
            TypeError: if the guide has no quantiles.
            ValueError: if the fit was unpickled, or a level is not between 0 and 1.
        """
        check_fit(self, "quantiles")
        levels = [float(level) for level in np.atleast_1d(levels)]
        if not all(0 < level < 1 for level in levels):
            raise ValueError(f"levels of quantiles are between 0 and 1, not {levels}")
        return self._verbs("quantiles").of_guide(self, "quantiles", levels)

    def summary(self, mass: float = 0.9) -> str:
        """A table of all latent sites, with the first elements of large ones.

        Args:
            mass: probability under the guide inside the interval.

        Returns:
            Lines with the median and the ends of the central interval, on the supports.

        Raises:
            TypeError: if the guide has no quantiles.
            ValueError: if the fit was unpickled, or ``mass`` is not between 0 and 1.

        Example:
            >>> print(result.summary())  # doctest: +SKIP
        """
        levels = (0.5, (1 - mass) / 2, (1 + mass) / 2)
        headings = ("median", *(f"{100 * level:.3g}%" for level in levels[1:]))
        sites, to_numpy = self.quantiles(levels), self._verbs("quantiles").to_numpy
        return site_table(
            {site: dict(zip(headings, to_numpy(part), strict=True)) for site, part in sites.items()}
        )

    def _verbs(self, verb: str) -> FitVerbs:
        if self.verbs is None:
            raise ValueError(
                f"this fit does not know its model, as it was made by hand or unpickled: call "
                f"{verb}(model, result, ...), or load(path, model, guide, ...)"
                if verb in ("predict", "save")
                else f"this fit was made by hand or unpickled: call result.guide.{verb}"
            )
        return self.verbs

    @property
    def rank(self) -> float:
        """Number by which fits of one model are compared: the best fit has the lowest.

        The negative held-out log-likelihood, if there is one; else the mean of the last
        losses.
        """
        if self.best is not None:
            return -self.held_out[self.best]
        recent = self.losses[-1:] if len(self.losses) > self.steps else self.losses[-RECENT:]
        mean = float(np.mean(recent))
        return mean if np.isfinite(mean) else np.inf


def of_fit(guide: Any, params: Any, args: tuple = ()) -> tuple[Any, Any, tuple]:
    """Return guide, parameters and arguments, where a fit may stand for guide and parameters."""
    if not isinstance(guide, Fit):
        return guide, params, args
    # ``predict(model, fit, x)``: the first argument stands where parameters would.
    is_argument = params is not None and params is not guide.params
    return guide.guide, guide.params, (params, *args) if is_argument else args


def knows_sites(guide: Any, params: Any, data: tuple, named: Mapping[str, Any]) -> bool:
    """Return whether a fit is saved by what it knows, without arguments of its model."""
    if not isinstance(guide, Fit) or guide.sites is None or data or named:
        return False
    return params is None or params is guide.params


def check_fit(fit: Any, method: str) -> None:
    """Raise TypeError unless it is a fit whose guide has a method."""
    if not isinstance(fit, Fit):
        raise TypeError(f"this takes what fit(...) or load(...) returned, got {type(fit).__name__}")
    if not hasattr(fit.guide, method):
        raise TypeError(
            f"{type(fit.guide).__name__} has no {method}: fit one of DVIGuide's kind, or one of "
            "the framework's autoguides"
        )


def check_dictionary(params: Any) -> None:
    """Raise TypeError unless ``params`` is a dictionary of parameters."""
    if not isinstance(params, Mapping):
        raise TypeError(
            "params takes the trained parameters, a dictionary as of fit(model, guide, ...).params,"
            f" got {type(params).__name__}; or pass what fit returned in place of the guide"
        )
