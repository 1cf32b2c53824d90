"""Train a guide to convergence with the function ``fit``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar

import pyro
import torch
from pyro.infer.autoguide import AutoGuide
from pyro.optim import PyroOptim

from moment_calculus import UnsupportedMoments
from moment_inference import FitTask
from moment_inference.objectives import observations, starts
from moment_inference.optimisation import (
    LEARNING_RATE,
    Course,
    Fit,
    Options,
    Progress,
    batches,
    minimiser,
)
from pyro_moments.evaluation.arguments import checked
from pyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from pyro_moments.fitting.flat_loss import check_deterministic, flat_loss, smaller_start
from pyro_moments.fitting.gradients import GradientTrainer, PyroOptimiser, TorchOptimiser
from pyro_moments.fitting.joint import joint_loss
from pyro_moments.fitting.parameters import (
    Parameters,
    ParameterSnapshot,
    frozen_parameters,
    new_parameters,
    parameters_to_float64,
    remember_fit,
    restart_if_fitted,
    unconstrained_values,
)
from pyro_moments.fitting.problem import Problem
from pyro_moments.fitting.storing import HOST, VERBS, leave_in_single
from pyro_moments.objectives.base import Program
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.sites.traces import bind


@checked
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: Any = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float | Callable | None = None,
    optimiser: PyroOptim | Callable | None = None,
    scheduler: Callable | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    rows: int | None = None,
    plate: str | None = None,
    kl_warm_up: int | tuple[int, int] | None = None,
    precision: str | None = None,
    held_out: Any = None,
    patience: int = 10,
    every: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress_bar: bool | None = None,
    checkpoint: str | PathLike[str] | None = None,
    restarts: int = 1,
    prior: Fit | None = None,
    start: Fit | None = None,
    float64: bool = False,
    unsupported: str | None = None,
    by_draws: bool | float = True,
    acknowledge: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

    The guide, and the model's own parameters with it, start afresh, also where an earlier
    ``fit`` trained the same guide; parameters of another training, by ``SVI`` or by one
    of Pyro's guides, are trained further, in place. The result has its own copies: passed
    to :func:`predict`, :func:`linear_response`, :func:`save` or :func:`diagnose`, it
    stays what it is when guide or model are trained again.

    Args:
        model: the model.
        guide: a guide, also one without a model; its scales set the units of the steps,
            where they are named like those of ``DVIGuide`` and ``AutoNormal``.
        *data: arguments of model and guide: arrays, also of NumPy, lists of numbers,
            columns and data frames, or dictionaries and tuples of these. A frame alone
            gives each argument of the model the column of its name; if the model needs
            none of its columns, it is one matrix. ``data=`` takes all arguments as a
            tuple or a dictionary, where the model has one that is named like an option.
            Or a loader of mini-batches (a DataLoader, an iterable for each epoch, or an
            iterator), which gives the arguments by name if a mini-batch is a dictionary,
            in order if it is a list. ``Moments`` stand for inputs that are uncertain or
            missing (``Moments.missing(x)``); the guide gets their means. Such models are
            best trained by ``BBAlphaELBO(alpha=1.0)``.
        **named: arguments of model and guide by name.

        Objective:
        objective: an ELBO; by default ``DeterministicELBO()``.
        method: ``"adam"``; or, for a deterministic loss of all data, ``"lbfgs"``, or
            ``"newton"`` with the dense Hessian of up to 1000 parameters, and
            Hessian–vector products beyond, both by SciPy.
        steps: largest number of steps; by default 2000, 5000 and 500.
        tolerance: where a deterministic method has converged: for ``"newton"`` the Newton
            decrement ½ gᵀ H⁻¹ g in nats, for ``"lbfgs"`` the relative change of the loss
            in ten steps; by default 1e-9, and never below what the precision of the loss
            shows. For ``"adam"`` the relative change of the mean loss from ``every``
            steps to the next; by default none. ``"lbfgs"`` and ``"adam"`` on all data
            look at the least curvature where they come to rest, by at most 24 slopes:
            they step off a saddle, and go on.

        Optimiser:
        learning_rate: of Adam, by default 0.01; or a function of the number of steps made
            before.
        optimiser: in place of Adam one of Pyro's, with its schedule and gradient
            clipping, or one of Optax (NumPyro), or a function that makes one of torch of
            the parameters (Pyro). ``optimizer=`` is the same.
        scheduler: makes a learning-rate schedule of torch from the optimiser; the
            schedule takes a step after every step of the optimiser.

        Mini-batches:
        batch_size: rows of a mini-batch. All arguments are cut along their first axis,
            shuffled anew in every epoch by the seed; rows that fill no mini-batch are
            left out of an epoch.
        epochs: how often to go through all mini-batches, in place of ``steps``.
        rows: rows of all data, where a loader does not tell.
        plate: the plate of the rows, where it is not the only one of the mini-batch's
            size. What is observed in it counts as much as all rows do; a model that
            scales itself, by a subsampled plate or a handler, is left as it is.

        Loss:
        kl_warm_up: number of steps in which the weight of the KL divergence rises to one;
            or a tuple, steps without it and steps of the rise.
        precision: how the scale σ of Normal noise is set, 1/σ² being the precision of the
            observations: by default it is a parameter like others. ``"type-II"`` takes it
            from the optimiser and sets it after each epoch, on all rows at once, to what
            makes the ELBO largest, σ² = Σ E(y − f)² / N; ``"profile"`` puts this into the
            loss of every step, for all data at once. Both end where training σ ends. The
            model has to have σ as a parameter of one number.

        Watching:
        held_out: arguments of the model, with observations, that are not trained on. The
            parameters with the highest log predictive density of these are kept.
        patience: evaluations of it without a rise after which the training stops.
        every: steps between two looks at what is held out, of the callback, and two
            checkpoints; by default 100. A deterministic method begins a new round with
            each.
        callback: called with the :class:`Progress`; it ends the training by returning
            True.
        progress_bar: whether a bar shows the ELBO and its parts; by default on terminals.
        checkpoint: path of a file that is written all along; if it exists, the fit goes
            on from it and ends as if it had never been interrupted, on the same machine
            bit for bit.

        Starts:
        start: an earlier fit with the same sites, whose parameters this one begins with; by
            default it begins anew. A ``GaussianGuide`` begins with those of a ``DVIGuide``,
            too, with independent components.
        prior: an earlier fit with a ``DVIGuide``, on other data: its posterior takes the
            place of the model's prior. Sites in a plate with what is observed are of the
            rows, and keep theirs.
        restarts: trainings from different starts, the best of which is kept.
        seed: of initial values, the order of mini-batches and all draws of the training.

        Numbers:
        float64: whether to compute in double precision, with doubles of the arrays among
            the arguments; those that the model has elsewhere, such as in closures, are
            the model's own. The result has doubles; guide and model themselves are left in
            single precision where the model is, so that ``Predictive`` takes them.
        by_draws: whether to compare a closed-form loss with draws of the guide in the end.
            They agree, contradict it, or cannot tell, see ``Fit.by_draws``, and the last two
            warn. Where the last random map is Gaussian given its inputs, all sites but its
            own are drawn, and what is left is a closed form. Of more than 2000 rows both are
            of that many, drawn at random and scaled up as a mini-batch is; of all where the
            arguments have not the same rows, or the model does not run on fewer. It takes a
            tenth of the time of the fit, or two seconds of the processor if that is more; a
            number says how many. Random states of the user are left as they are.
        unsupported: what to do with terms without a moment rule: by default the model is
            refused. ``"held draws"`` integrates these terms, and nothing else, by draws of the
            latent sites that are held throughout (scrambled Sobol points in antithetic pairs),
            so that the loss is a smooth function for every method, linear response and check.
            Terms of a fourth product of dependent values, each of the one before, count as
            such: those of an epidemic by Euler steps, whose moments are approximations else.
            The number is doubled, from 256 to at most 8192, until other draws would move no
            mean by more than .1 standard deviations; ``Fit.held`` tells sites, number and
            error. With covariances in the guide it is at least four times the number of
            coordinates: on fewer the loss has no lower bound. It takes all data at once, and
            guides of Gaussian sites and their transforms.
        acknowledge: whether L-BFGS and Newton's method may take a rule book that is no bound.

    Returns:
        The guide, whose parameters are trained in place, the losses and why it stopped.

    Raises:
        ValueError: if options are unknown or do not go together, the method needs a
            deterministic loss and this one is not, or a finite loss at the start; if it
            is not clear how a mini-batch is to be scaled; if the order of a loader cannot
            be restored.
        StoredFileError: if the checkpoint is damaged, or of another fit.
        UnsupportedMoments: if the model leaves the supported operations, or data are not
            finite, outside of what a distribution takes, or of another shape.
        TypeError: if model, guide or objective are something else, or a name is neither
            an option nor an argument of the model.

    Warns:
        UserWarning: if the model observes nothing.
        LossByDrawsWarning: if draws contradict the loss, or cannot tell, see ``by_draws``.

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    options = Options.of_call(locals())
    with frozen_parameters(model):
        trained = fit_with(options, model, guide, data, named, objective)
    if options.float64 and torch.get_default_dtype() is torch.float32:
        leave_in_single(trained, model, data, named)
    return trained.with_model(model, VERBS)


def fit_with(
    options: Options,
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    objective: Any = None,
) -> Fit:
    """Train a guide as :func:`fit` does, with its options in one object."""
    trained = PyroFitTask.fit(options, model, guide, args, kwargs, objective)
    remember_fit(trained)
    return trained


class PyroFitTask(Problem):
    """One call of ``fit`` in Pyro, where parameters have their places in a store and modules."""

    host: ClassVar = HOST
    default_objective: ClassVar = DeterministicELBO

    def train(self) -> tuple[Fit, FitTask]:
        """Train the guide with parameters of its own."""
        restart_if_fitted(self.guide)
        with new_parameters(self.guide):
            try:
                fit, parameters = self._train_from_valid_start()
            except UnsupportedMoments as error:
                # A row is named by its number in all data, not in a mini-batch.
                if observations.NOT_FINITE in error.cause and self.source.size is not None:
                    refuse_nonfinite_inputs(self.model, *batches.whole_arguments(self.source))
                raise
        fit.context = ParameterSnapshot(parameters, (self.model, self.guide))
        plain = replace(self.options, kl_warm_up=None, precision=None)
        return fit, replace(self, options=plain)

    def joint_loss(self, fit: Fit, data: batches.Arguments) -> Any:
        """Return the loss of a Gaussian with covariances at the optimum of a mean field."""
        program = Program(self.trained_model, self.guide, *data)
        return joint_loss(program, self.objective, fit)

    def _train_from_valid_start(self) -> tuple[Fit, Parameters]:
        """Train, from a smaller start if the model fails at the usual initial locations."""

        def seeded_training() -> tuple[Fit, Parameters]:
            pyro.set_rng_seed(self.options.seed)
            return self._train_once() if self.options.restarts == 1 else self._best_of_restarts()

        is_set_up = lambda: getattr(self.guide, "_sites", None) is not None  # noqa: E731
        return starts.with_valid_start(self.guide, seeded_training, is_set_up)

    def _train_once(self) -> tuple[Fit, Parameters]:
        """Train the guide, and return the fit and the parameters."""
        bind(self.guide, self.trained_model)
        if self.options.float64:
            parameters_to_float64(self.unweighted_loss)
        if self.options.start is not None:
            parameters = Parameters.from_run(self.unweighted_loss)
            own = parameters.constrained_copies()
            begin = self.options.params_of_start(self.guide, own)
            parameters.load(unconstrained_values(parameters, begin))
        if self.options.method == "adam":
            self.noise  # noqa: B018  is found before the first step
            trainer = GradientTrainer(self, _optimiser_of(self.options))
            fit = self.run(trainer, Course(), lambda kept: kept)
            return fit, self.with_noise(trainer.steps.parameters)
        minimiser, parameters = _minimiser_of(self)
        fit = self.run(minimiser, minimiser.outcome, parameters.load_vector_and_copy)
        return fit, self.with_noise(parameters)

    def _best_of_restarts(self) -> tuple[Fit, Parameters]:
        """Return the best of several fits, and the guide's parameters, which then are its.

        Pyro stores parameters by name, so that a copy of the guide would continue with those
        of the last training: every training has a store of its own.
        """
        guide = self.guide
        if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is not None:
            raise ValueError(
                "restarts begin with new parameters, and the guide has some: give a new one"
            )
        module = self.model if isinstance(self.model, torch.nn.Module) else torch.nn.Module()
        initial = copy.deepcopy(module.state_dict())
        fits = []
        for _ in range(self.options.restarts):
            with pyro.get_param_store().scope():
                fit, parameters = replace(self, guide=_copy_guide(guide))._train_once()
                fits.append((fit, parameters.unconstrained_copies()))
            module.load_state_dict(initial)
        fit, copies = min(fits, key=lambda pair: pair[0].rank)
        bind(guide, self.trained_model)
        parameters = Parameters.from_run(self.unweighted_loss)
        parameters.load(copies)
        fit.guide = guide
        return fit, parameters


def _optimiser_of(options: Options) -> TorchOptimiser:
    scheduler = options.scheduler
    if isinstance(options.optimiser, PyroOptim):
        if scheduler is not None:
            raise ValueError("a schedule of torch goes with an optimiser of torch, not of Pyro")
        return PyroOptimiser(options.optimiser)
    if options.optimiser is not None and not callable(options.optimiser):
        raise TypeError(
            "optimiser takes one of pyro.optim, or a function that makes one of torch of the "
            f"parameters, such as functools.partial(torch.optim.AdamW, lr=0.01), got "
            f"{type(options.optimiser).__name__}"
        )
    rate = options.learning_rate
    if callable(rate):
        return TorchOptimiser(partial(torch.optim.Adam, lr=rate(0)), scheduler, rate)
    adam = partial(torch.optim.Adam, lr=LEARNING_RATE if rate is None else rate)
    return TorchOptimiser(options.optimiser or adam, scheduler, None)


def _minimiser_of(task: Problem) -> tuple[minimiser.Minimiser, Parameters]:
    data = task.source.arguments(0)
    program, objective = task.program(data), task.trained_objective
    loss = partial(program.loss, objective)
    parameters = Parameters.from_run(loss)
    check_deterministic(loss)

    def at_parameters(read: Callable[[], Any]) -> Callable[[Any], Any]:
        def at(vector: Any) -> Any:
            parameters.set_vector(vector)
            task.with_noise(parameters)
            return read()

        return at

    start = parameters.vector()
    trainer = task.minimiser(
        flat_loss(objective, program, parameters),
        start,
        partial(smaller_start, parameters, start),
        at_parameters(lambda: task.with_noise(parameters).constrained_copies()),
        at_parameters(lambda: task.terms(data, None)),
        at_parameters(task.score),
    )
    return trainer, parameters


def _copy_guide(guide: Any) -> Any:
    """Return a copy of an uncalled guide; both keep the model, which Pyro's copies lose."""
    parts = list(guide.modules()) if isinstance(guide, torch.nn.Module) else []
    models: list[Any] = [getattr(part, "_model", None) for part in parts]
    new = copy.deepcopy(guide)
    copies = list(new.modules()) if parts else []
    for part, copied, model in zip(parts, copies, models, strict=True):
        if isinstance(part, AutoGuide):
            part._model = copied._model = model
    return new
