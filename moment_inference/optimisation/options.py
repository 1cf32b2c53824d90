"""Options of ``fit``: their checks, and the objects that a fit builds from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from moment_inference.optimisation.batches import (
    AllData,
    Arguments,
    LoaderBatches,
    RandomState,
    ShuffledBatches,
    batch_arguments,
    is_loader,
)
from moment_inference.optimisation.compilation import compilation_shown
from moment_inference.optimisation.minimiser import METHODS
from moment_inference.optimisation.outcome import Fit
from moment_inference.optimisation.precision import MODES
from moment_inference.optimisation.training import Progress, TrainingPlan
from moment_inference.optimisation.weighting import WarmUp, parse_warm_up

STEPS = {"adam": 2000, "lbfgs": 5000, "newton": 500}
LEARNING_RATE = 1e-2
STRETCH = 100
HELD_DRAWS = "held draws"


@dataclass(frozen=True)
class Options:
    """The options of ``fit`` in both frameworks; ValueError if they conflict."""

    method: str = "adam"
    steps: int | None = None
    tolerance: float | None = None
    learning_rate: Any = None
    optimiser: Any = None
    scheduler: Any = None  # of torch, in Pyro
    batch_size: int | None = None
    epochs: int | None = None
    rows: int | None = None
    plate: str | None = None
    kl_warm_up: int | tuple[int, int] | None = None
    precision: str | None = None
    held_out: Any = None
    patience: int = 10
    every: int | None = None
    callback: Callable[[Progress], Any] | None = None
    progress_bar: bool | None = None
    checkpoint: Any = None
    restarts: int = 1
    prior: Fit | None = None
    start: Fit | None = None
    params: Any = None  # to begin with, in NumPyro
    float64: bool = False
    unsupported: str | None = None
    by_draws: bool | float = True
    acknowledge: bool = False
    seed: int = 0

    @classmethod
    def of_call(cls, arguments: Mapping[str, Any]) -> Options:
        """Return the options among the arguments of a call of ``fit``."""
        names = {part.name for part in fields(cls)}
        return cls(**{name: arguments[name] for name in names & arguments.keys()})

    def __post_init__(self) -> None:
        candidates = ["adam", *METHODS]
        if self.method not in candidates:
            raise ValueError(f"method must be one of {', '.join(candidates)}, got {self.method!r}")
        for name in ("steps", "epochs", "every", "patience", "rows", "restarts", "batch_size"):
            _check_number(name, getattr(self, name))
        if not isinstance(self.seed, int):
            raise TypeError(f"seed must be an integer, got {type(self.seed).__name__}: seed=0")
        _check_rate(self.learning_rate)
        _check_function("callback", self.callback)
        if not (isinstance(self.by_draws, bool) or self.by_draws > 0):
            raise ValueError(
                f"by_draws={self.by_draws!r} is True, False, or the seconds that the check takes"
            )
        self._check_together()
        self._check_unsupported()
        self._check_precision()
        if self.method != "adam":
            self._check_deterministic()
        folder = Path(self.checkpoint or "").parent
        if not folder.is_dir():
            raise FileNotFoundError(f"checkpoint {self.checkpoint}: there is no folder {folder}")

    def _check_together(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("steps and epochs both say how long to train: give one of them")
        if self.optimiser is not None and self.learning_rate is not None:
            raise ValueError(
                "learning_rate is of the default optimiser, Adam: give it to the optimiser"
            )
        if is_loader(self.held_out):
            raise ValueError("held_out takes the model's arguments, such as (x, y), not a loader")
        if self.restarts > 1 and self.checkpoint is not None:
            raise ValueError("restarts are not stored: checkpoint one fit after the other")
        if self.restarts > 1 and self.start is not None:
            raise ValueError("restarts begin with new parameters each, not with those of start")
        for name in ("prior", "start"):
            fit = getattr(self, name)
            if fit is not None and not isinstance(fit, Fit):
                raise TypeError(f"{name} takes what fit or load returned, got {type(fit).__name__}")

    def _check_unsupported(self) -> None:
        """Raise ValueError for another remedy than held draws, or where these are not found."""
        if self.unsupported is None:
            return
        if self.unsupported != HELD_DRAWS:
            raise ValueError(
                f"unsupported is {HELD_DRAWS!r}, or None to refuse, not {self.unsupported!r}"
            )
        names = ("batch_size", "checkpoint", "precision", "kl_warm_up")
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise ValueError(
                "held draws are chosen by the loss of all data, in several trainings: leave out "
                f"{', '.join(given)}, or choose their number by "
                "objective=DeterministicELBO(held_draws=1024)"
            )

    def _check_precision(self) -> None:
        """Raise ValueError for an unknown precision, or one without meaning for the method."""
        if self.precision not in MODES:
            names = ", ".join(repr(mode) for mode in MODES if mode)
            raise ValueError(f"precision must be one of {names}, got {self.precision!r}")
        if self.precision == "type-II" and self.method != "adam":
            raise ValueError(
                f"precision='type-II' sets the scale between the steps of method='adam'; "
                f"method={self.method!r} takes precision='profile', the same in the loss"
            )
        if self.precision == "profile" and not (self.batch_size is self.checkpoint is None):
            raise ValueError(
                "precision='profile' is the least loss of all rows, and trains no scale to store: "
                "with mini-batches, or a checkpoint, take precision='type-II'"
            )

    def _check_deterministic(self) -> None:
        """Raise ValueError for options that only methods with noisy gradients need."""
        names = ("learning_rate", "optimiser", "batch_size", "epochs", "kl_warm_up", "rows")
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise ValueError(
                f"method={self.method!r} minimises one loss of all data: {', '.join(given)} "
                "goes with method='adam'"
            )

    def params_of_start(self, guide: Any, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of the earlier fit, as a guide with its own ones takes them."""
        assert self.start is not None
        known = hasattr(guide, "from_mean_field")
        return guide.from_mean_field(self.start.params, own) if known else self.start.params

    def check_book(self, objective: Any) -> None:
        """Raise ValueError if an exact optimiser would exploit the errors of a rule book."""
        propagation = getattr(objective, "propagation", None)
        if self.method == "adam" or self.acknowledge or propagation is None:
            return
        book = propagation.rulebook
        if not book.is_bound and getattr(objective, "propagation_kind", "") == "analytic":
            raise ValueError(
                f"the rule book {book.name!r} is no bound: method={self.method!r} follows its "
                "errors to losses far below the true ones. Take rules='exact', or method='adam', "
                "or acknowledge=True and compare with draws, see Fit.by_draws"
            )

    def settings(self, data: str, objective: Any, float64: bool) -> dict[str, Any]:
        """Return what a resumed fit must have in common with the one before."""
        # ``data`` is a digest of the data.
        names = ("method", "batch_size", "precision", "seed", "rows", "plate", "patience")
        rate = self.learning_rate
        return {
            **{name: getattr(self, name) for name in names},
            "kl_warm_up": None if self.warm_up is None else [self.warm_up.wait, self.warm_up.rise],
            "learning_rate": rate if rate is None or isinstance(rate, int | float) else "schedule",
            "optimiser": _described(self.optimiser),
            "every": self.stretch,
            "tolerance": self.tolerance,
            "held_out": self.held_out is not None,
            "objective": _described_objective(objective),
            "float64": float64,
            "data": data,
        }

    @property
    def held_out_arguments(self) -> Arguments | None:
        """Return the arguments of the model that are held out."""
        return None if self.held_out is None else batch_arguments(self.held_out)

    @property
    def warm_up(self) -> WarmUp | None:
        """Return the warm-up of the KL divergence; None if there is none."""
        return parse_warm_up(self.kl_warm_up)

    @property
    def stretch(self) -> int | None:
        """Return the number of steps of a stretch; None for a single stretch."""
        if self.every is not None or self.method == "adam":
            return self.every or STRETCH
        looks = (self.held_out, self.callback, self.checkpoint)
        return None if all(look is None for look in looks) else STRETCH

    def source(
        self,
        args: tuple,  # positional arguments
        kwargs: dict[str, Any],
        take: Callable[[Any, Any], Any],  # picks rows of an array
        convert: Callable[[Any], Any],  # to arrays of the framework
        random: RandomState | None,  # the framework's global random state, if it has one
    ) -> AllData:
        """Return the source of the data of every step."""
        if not any(map(is_loader, args)):
            if self.batch_size is not None:
                return ShuffledBatches(args, kwargs, self.batch_size, self.seed, take)
            for name in ("epochs", "rows"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is of mini-batches: give a batch_size or a loader")
            return AllData(args, kwargs)
        if len(args) > 1:
            raise ValueError(
                "a loader of mini-batches is the only positional argument: give what is the same "
                "in all of them by name"
            )
        if self.method != "adam" or not (self.batch_size is self.precision is None):
            raise ValueError(
                "a loader makes mini-batches itself, of method='adam', and does not give all rows "
                "at once, which precision=... takes: give arrays, and a batch_size"
            )
        source = LoaderBatches(args[0], kwargs, random, convert)
        if source.is_iterator and self.restarts > 1:
            raise ValueError("an iterator runs once, which is not enough for restarts")
        return source

    def number_of_steps(self, source: AllData) -> int:
        """Return the largest number of steps."""
        if self.epochs is None:
            return self.steps or STEPS[self.method]
        if isinstance(source, ShuffledBatches):
            return self.epochs * source.per_epoch
        try:
            return self.epochs * len(source.loader.loader)  # type: ignore[attr-defined]
        except TypeError:
            raise ValueError("the loader does not know its length: give steps") from None

    def rows_of(self, source: AllData) -> int | None:
        """Return the number of rows of all data; None if it is unknown."""
        if self.rows is not None:
            return self.rows
        if isinstance(source, LoaderBatches):
            return source.loader.rows
        return source.rows if isinstance(source, ShuffledBatches) else None

    def plan(self, source: AllData) -> TrainingPlan:
        """Return the limits of a training, and what happens between its stretches."""
        return TrainingPlan(
            self.number_of_steps(source),
            self.stretch,
            self.tolerance if self.method == "adam" else None,
            None if self.held_out is None else self.patience,
            self.callback,
            progress_bar=self.progress_bar,
        )

    def compilation_shown(self) -> AbstractContextManager[None]:
        """Return where it is told that a program is compiled, if a progress bar is shown."""
        return compilation_shown(self.progress_bar)


def _check_number(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _check_rate(rate: Any) -> None:
    if rate is None or callable(rate) or hasattr(rate, "dtype"):
        return
    if not isinstance(rate, int | float):
        raise TypeError(
            f"learning_rate must be a number, or a function of the number of steps, got {rate!r}"
        )
    if not rate >= 0:
        raise ValueError(f"learning_rate must not be negative, got {rate}: the default is 0.01")


def _check_function(name: str, function: Any) -> None:
    if function is not None and not callable(function):
        raise TypeError(
            f"{name} must be a function, got {function!r}: it is called with the Progress"
        )


def _described(optimiser: Any) -> str | None:
    """Describe an optimiser in words, as far as possible; None for the default."""
    if isinstance(optimiser, partial):
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(optimiser.keywords.items()))
        return f"{getattr(optimiser.func, '__name__', optimiser.func)}({named})"
    return None if optimiser is None else type(optimiser).__name__


def _described_objective(objective: Any) -> str:
    propagation = getattr(objective, "propagation", None)
    names = ("covariance", "categorical", "categorical_draws")
    parts = [getattr(propagation, name, None) for name in names]
    parts[1] = parts[1] or "points"
    sites = sorted(getattr(objective, "sample_sites", ()))
    draws = getattr(objective, "num_particles", None)
    return " ".join(map(str, [type(objective).__name__, *parts, *sites, draws]))
