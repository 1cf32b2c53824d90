"""One call of ``fit``: preparations, the training, its file, and the check of its loss."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions.blocks import Rows, rows_of_a_sum, sum_of_rows
from moment_calculus.rulebooks import propagation_of
from moment_guides.families.gaussian import LatentVector
from moment_inference.objectives.by_draws import Evaluations, loss_by_draws, warn_unless_confirmed
from moment_inference.objectives.held_draws import (
    FEWEST,
    OTHER_SETS,
    HeldDraws,
    error_of_means,
)
from moment_inference.objectives.observations import expecting_observations
from moment_inference.objectives.remembered import KnownObjectives
from moment_inference.objectives.starts import Factors, finite_vector
from moment_inference.optimisation.batches import (
    AllData,
    Arguments,
    LoaderBatches,
    RandomState,
    first_arguments,
    whole_arguments,
)
from moment_inference.optimisation.minimiser import Minimiser
from moment_inference.optimisation.options import Options
from moment_inference.optimisation.outcome import Course, Dependence, Fit
from moment_inference.optimisation.rounds import DeterministicLoss, cached, initial_outcome
from moment_inference.optimisation.storage.trainings import (
    Checkpoint,
    Sites,
    StoredTraining,
    data_digest,
)
from moment_inference.optimisation.training import Trainer, train, write_below_bar
from moment_inference.optimisation.weighting import PlateScaling, priors_from_fit
from moment_inference.response.dependence import dependence_at


@dataclass(frozen=True, kw_only=True)
class FittingHost:
    """A framework as trainings and their files need it; calls take model, args and kwargs."""

    objectives: KnownObjectives  # that files hold
    packages: tuple[str, ...]  # whose versions files hold
    random: RandomState | None  # the global state on which programs depend
    double_precision: Callable[[bool], AbstractContextManager]  # of new arrays, if true
    is_double: Callable[[], bool]  # whether new arrays are doubles
    converted: Callable[[Any, bool], Any]  # containers with the framework's arrays, doubles if true
    converted_batch: Callable[[Any, bool], Any]  # the same of what a loader gives
    rows: Callable[[Any, np.ndarray], Any]  # by indices, also in tuples and dictionaries
    leaves: Callable[[Any], list[Any]]  # of nested containers
    to_array: Callable[[Any], np.ndarray | None]  # None for what is no array
    sampled_sites: Callable[..., Mapping[str, Any]]  # of a call, without side effects
    with_priors: Callable[[Callable, Mapping[str, Any]], Callable]  # a model with others, by site
    prior_arrays: Callable[[Fit, Any], Any]  # of an earlier fit, whose posterior a model has so
    described: Callable[..., Sites]  # what a file holds of the model of a call
    # What a fit keeps to describe its model without arguments; None if it cannot.
    sites_of_training: Callable[[Callable, AllData], Any]
    density_text: Callable[..., str]  # of a call, with or without ``observed`` sites
    refuse_nonfinite_inputs: Callable[..., None]  # of a call, by UnsupportedMoments

    def stored(self, guide: Any, sites: Sites, objective: Any = None) -> StoredTraining:
        """Return the reader and writer of the files of a model with these sites and a guide."""
        name, record = self.objectives.front_end, self.objectives.record(objective)
        return StoredTraining(name, self.packages, guide, sites, self.to_array, record)

    def digest(self, data: Any) -> str:
        """Return a hash of the arrays among data."""
        arrays = map(self.to_array, self.leaves(data))
        return data_digest(array for array in arrays if array is not None)

    def with_prior(self, model: Callable, prior: Fit | None, source: AllData) -> Callable:
        """Return a model with an earlier posterior as the prior of its global sites."""
        if prior is None:
            return model
        sites = self.sampled_sites(model, *first_arguments(source))
        return self.with_priors(model, priors_from_fit(sites, prior))


@dataclass(frozen=True, kw_only=True)
class FitTask(ABC):
    """What one call of ``fit`` does with model and guide; a front end evaluates and trains."""

    host: ClassVar[FittingHost]
    default_objective: ClassVar[Callable[[], Any]]

    options: Options
    objective: Any  # the user's
    model: Callable  # the user's
    trained_model: Callable  # with the prior of an earlier fit
    guide: Any
    source: AllData  # of the data
    held_out: Arguments | None
    started: float  # when the preparations began, by ``time.perf_counter``

    @abstractmethod
    def train(self) -> tuple[Fit, FitTask]:
        """Train the guide; return the best fit, and the task without weights of single steps."""

    @abstractmethod
    def explain(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise UnsupportedMoments if arguments make the loss infinite."""

    @abstractmethod
    def evaluations(self, params: dict[str, Any], is_last: bool) -> Evaluations:
        """Return what evaluates the trained objective in closed form and by draws."""

    @abstractmethod
    def joint_loss(
        self, fit: Fit, data: Arguments
    ) -> tuple[DeterministicLoss, np.ndarray, LatentVector] | None:
        """Return the loss of a Gaussian with covariances, its parameters and its coordinates.

        The parameters are those of a fit of independent coordinates; None for other guides.
        """

    @classmethod
    def fit(
        cls,
        options: Options,
        model: Callable,
        guide: Any,
        args: tuple,
        kwargs: dict[str, Any],
        objective: Any = None,
    ) -> Fit:
        """Train a guide as ``fit`` does, with its options in one object."""
        started, host, double = time.perf_counter(), cls.host, options.float64
        state, shown = restored(host.random), options.compilation_shown()
        with host.double_precision(double), state, expecting_observations(), shown:
            args, kwargs = host.converted((args, kwargs), double)
            of_batch = lambda batch: host.converted_batch(batch, double)  # noqa: E731
            source = options.source(args, kwargs, host.rows, of_batch, host.random)
            objective = host.objectives.resumed(options.checkpoint, objective, guide)
            options.check_book(objective)
            task = cls(
                options=options,
                objective=objective or cls.default_objective(),
                model=model,
                trained_model=host.with_prior(model, options.prior, source),
                guide=guide,
                source=source,
                held_out=host.converted(options.held_out_arguments, double),
                started=started,
            )
            if options.unsupported is not None:
                task.check_held()
                return task._fit_with_held_draws()
            fit, trained = task.train()
            task._check(fit, trained)
            return replace(fit, measured_dependence=partial(_dependence, trained))

    def check_held(self) -> None:
        """Raise ValueError where held draws cannot be chosen."""
        if type(self.source) is not AllData:
            raise ValueError("held draws are chosen by the loss of all data: pass no loader")
        if not hasattr(self.objective, "with_held") or self.objective.alpha:
            raise ValueError(
                f"held draws go with DeterministicELBO, not {type(self.objective).__name__}"
            )

    def _fit_with_held_draws(self) -> Fit:
        """Train with held draws for what is refused, with more of them until they are enough."""
        count, options = FEWEST, self.options
        while True:
            objective = self.objective.with_held(held_draws=count)
            task = replace(self, objective=objective, options=options)
            fit, trained = task.train()
            if not (terms := trained.held_terms(fit)):
                fit.objective = self.objective
                break
            fit.held = trained._held_draws(fit, *terms)
            if fit.held.is_enough:
                break
            count, options = fit.held.next_number, replace(options, start=fit, restarts=1)
        task._check(fit, trained)
        return fit

    def _held_draws(self, fit: Fit, sites: list[str], number: int) -> HeldDraws:
        """Return what a training has drawn, with the error that other draws show."""
        objectives = [self.objective.with_held(held_set=which) for which in range(OTHER_SETS + 1)]
        (loss, *others), point = self.losses_at(fit, objectives)
        return HeldDraws(tuple(sites), number, error_of_means(loss, point, others))

    @abstractmethod
    def held_terms(self, fit: Fit) -> tuple[list[str], int] | None:
        """Return the sites with terms by held draws, and the number of draws; None if none."""

    @abstractmethod
    def losses_at(
        self, fit: Fit, objectives: list[Any]
    ) -> tuple[list[DeterministicLoss], np.ndarray]:
        """Return losses of all data by objectives that differ in their held draws.

        The fit's parameters as a vector come with them.
        """

    def _check(self, fit: Fit, trained: FitTask) -> None:
        """Look for the cause of an infinite loss, and at the loss by draws."""
        if not np.isfinite(fit.losses).all():
            trained.explain(*whole_arguments(self.source))
        if self.held_out is not None and not np.isfinite([*fit.held_out.values()]).all():
            self.host.refuse_nonfinite_inputs(self.model, *self.held_out)
        if not self.options.by_draws:
            return

        def evaluations_on(part: AllData, is_last: bool) -> Evaluations:
            task = trained if part is self.source else replace(trained, source=part)
            return task.evaluations(fit.params, is_last)

        parts = self.objective, self.source, self.options, self.host.rows, evaluations_on
        fit.by_draws = loss_by_draws(fit, *parts)
        write_below_bar(str(fit.by_draws), self.options.progress_bar)
        warn_unless_confirmed(fit.by_draws)

    @cached_property
    def plates(self) -> PlateScaling | None:
        """The scaling of mini-batches to all rows; None for all data at once."""
        if type(self.source) is AllData:
            return None
        return PlateScaling(self.options.rows_of(self.source), self.options.plate)

    @property
    def propagation(self) -> Any:
        """How latent sites flow through the model in a score."""
        return getattr(self.objective, "propagation", None) or propagation_of(None, "exact")

    @cached_property
    def _rows_at_once(self) -> list[int | None]:
        return []  # of a score, once they are known

    def summed(self, score: Callable[[list], Any], arrays: list) -> Any:
        """Return the sum of a score over rows of arrays, as many at once as memory has room for."""
        rows, at_once = Rows.of(arrays, score), self._rows_at_once
        at_once[:] = at_once or [rows_of_a_sum(rows, self.propagation.memory_limit)]
        return sum_of_rows(rows, *at_once)

    def minimiser(
        self,
        loss: DeterministicLoss,
        start: np.ndarray,
        smaller: Callable[[Factors], np.ndarray],  # starts
        *at: Callable[[np.ndarray], Any],  # parameters, terms and held-out score at a place
    ) -> Minimiser:
        """Return the trainer of a deterministic method, from a start where the loss is finite."""
        objective, options = cached(loss), self.options
        start = finite_vector(objective, start, smaller)
        explain = lambda: self.explain(*self.source.arguments(0))  # noqa: E731
        outcome = initial_outcome(objective, start, explain)
        return Minimiser(objective, outcome, options.method, options.tolerance, *at)

    def run(
        self,
        trainer: Trainer,
        course: Course,
        parameters: Callable[[Any], dict[str, Any]],  # by name, from what the trainer keeps
    ) -> Fit:
        """Train, with a checkpoint file if the options name one, and return the result."""
        sites = self.host.sites_of_training(self.model, self.source)
        prepared, plan = time.perf_counter(), self.options.plan(self.source)
        if self.options.checkpoint is None:
            train(trainer, course, plan)
        else:
            self._checkpoint(parameters).train(trainer, course, plan)
        params = trainer.values()  # moves those of a deterministic method
        fit = course.fit(self.guide, params, self.started, prepared)
        return replace(fit, sites=sites, objective=self.objective)

    def _checkpoint(self, parameters: Callable[[Any], dict[str, Any]]) -> Checkpoint:
        options, source, host = self.options, self.source, self.host
        if isinstance(source, LoaderBatches):
            source.check_resumable(host.random is not None)
        data = host.digest((source.args, source.kwargs))
        settings = options.settings(data, self.objective, host.is_double())
        if options.prior is not None:
            arrays = host.prior_arrays(options.prior, self.trained_model)
            settings["prior"] = host.digest(arrays)
        call = self.model, *first_arguments(source)
        # A loader may begin with other rows.
        observed = not isinstance(source, LoaderBatches)
        settings["density"] = host.density_text(*call, observed=observed)
        stored = host.stored(self.guide, host.described(*call), self.objective)
        return Checkpoint(Path(options.checkpoint), stored, settings, parameters)


ELSEWHERE = "it is known for the deterministic ELBO of all data at once"


@one_thread_at_a_time
def _dependence(task: FitTask, fit: Fit) -> Dependence:
    """Return how far means of a fit of independent coordinates lean on each other."""
    objective: Any = task.objective
    is_plain = type(objective) is type(task).default_objective and not objective.sample_sites
    if not is_plain or fit.held or isinstance(task.source, LoaderBatches):
        return Dependence(reason=ELSEWHERE)
    if hasattr(fit.guide, "gaussian_parameters"):
        return Dependence(reason=f"{type(fit.guide).__name__} has covariances itself")
    try:
        joint = task.joint_loss(fit, whole_arguments(task.source))
        if joint is None:
            return Dependence(reason=f"{type(fit.guide).__name__} is no mean field by sites")
        return dependence_at(*joint)
    except (RuntimeError, TypeError, ValueError) as error:  # of what covariances meet in the model
        return Dependence(reason=str(error).splitlines()[0])


@contextmanager
def restored(random: RandomState | None) -> Iterator[None]:
    """Leave a global random state as it was."""
    before = None if random is None else random.get()
    try:
        yield
    finally:
        if random is not None:
            random.set(before)
