"""Train a guide to convergence with the function ``fit``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_inference import FitTask, check_parameters
from moment_inference.objectives import starts
from moment_inference.optimisation import (
    LEARNING_RATE,
    Course,
    Fit,
    Options,
    Progress,
    batches,
    compilation,
    minimiser,
)
from numpyro_moments.evaluation.arguments import checked
from numpyro_moments.evaluation.small_operations import small_operations_by_numpy
from numpyro_moments.fitting.flat_loss import FlatLoss, multiplied_start
from numpyro_moments.fitting.gradients import GradientTrainer
from numpyro_moments.fitting.joint import joint_loss
from numpyro_moments.fitting.precision import held_scale
from numpyro_moments.fitting.problem import Problem
from numpyro_moments.fitting.storing import HOST, VERBS, arrays_in
from numpyro_moments.objectives.base import Program
from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.sites.subsamples import DrawnSubsamples
from numpyro_moments.svi import SVI


@checked
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: ELBO | None = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float | Callable | None = None,
    optimiser: Any = None,
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
    params: dict[str, Any] | None = None,
    float64: bool = False,
    unsupported: str | None = None,
    by_draws: bool | float = True,
    acknowledge: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

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
        optimiser: in place of Adam one of NumPyro's, with its schedule and gradient
            clipping, or one of Optax (NumPyro), or a function that makes one of torch of
            the parameters (Pyro). ``optimizer=`` is the same.

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
        params: parameters to begin with, of an earlier fit; by default initial ones.
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
        The trained parameters, the losses and why it stopped; ``params`` are those that
        ``predict`` and NumPyro's ``Predictive`` take.

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
    trained = fit_with(options, model, guide, data, named, objective)
    return trained.with_model(model, VERBS)


class NumPyroFitTask(Problem):
    """One call of ``fit`` in NumPyro, where a state of an SVI holds the parameters."""

    host: ClassVar = HOST
    default_objective: ClassVar = DeterministicELBO

    def train(self) -> tuple[Fit, FitTask]:
        """Train from every start, and return the best fit."""
        started, states = self._started()
        if self.options.method == "adam":  # side by side
            fits = [started._by_gradients(states)]
        else:
            fits = [started._by_curvature(state) for state in states]
        return min(fits, key=lambda fit: fit.rank), started

    def joint_loss(self, fit: Fit, data: batches.Arguments) -> Any:
        """Return the loss of a Gaussian with covariances at the optimum of a mean field."""
        program = Program(self.trained_model, self.guide, *data, fit.params)
        return joint_loss(program, self.objective, fit)

    @small_operations_by_numpy()
    def _started(self) -> tuple[NumPyroFitTask, list[Any]]:
        """Return the task with its SVI, and the initial state of every restart."""
        options = self.options
        rate = LEARNING_RATE if options.learning_rate is None else options.learning_rate
        optimiser = options.optimiser or Adam(rate)
        svi = SVI(self.trained_model, self.guide, optimiser, loss=self.objective)
        args, kwargs = batches.first_arguments(self.source)
        key = jax.random.key(options.seed)
        params = options.params if options.start is None else options.start.params
        noise = None
        if options.precision is not None:
            svi, noise = held_scale(svi, options.precision, key, (args, kwargs))
        keys = [key, *(jax.random.fold_in(key, part) for part in range(1, options.restarts))]
        with DrawnSubsamples() as drawn:
            states = starts.with_valid_start(
                self.guide,
                lambda: [svi.init(key, *args, init_params=params, **kwargs) for key in keys],
            )
        if options.method != "adam":
            minimiser.check_no_subsample(drawn.plates)
        made = {**svi.get_params(states[0]), **(states[0].mutable_state or {})}
        if options.start is not None:
            check_parameters(options.params_of_start(self.guide, made), made)
        return replace(self, svi=svi, noise=noise), states

    def _by_gradients(self, states: list[Any]) -> Fit:
        trainer = GradientTrainer(self, states)
        trainer.prepare()
        return self.run(trainer, Course(), lambda kept: arrays_in(trainer.named(kept)))

    def _by_curvature(self, state: Any) -> Fit:
        with compilation(), small_operations_by_numpy():
            trainer = _minimiser(self, state)
        return self.run(trainer, trainer.outcome, lambda kept: arrays_in(trainer.values_at(kept)))


fit_with = NumPyroFitTask.fit


def _minimiser(task: Problem, state: Any) -> minimiser.Minimiser:
    if state.mutable_state is not None and task.noise is None:
        raise ValueError(
            "mutable state (batch statistics) changes the loss from step to step: use "
            "method='adam', or evaluate the module with its running averages"
        )
    data = task.source.arguments(0)
    loss = FlatLoss.of(task.svi, task.program(data, {}), state.rng_key)
    flat, unravel = ravel_pytree(task.svi.optim.get_params(state.optim_state))
    values = loss.two_values(unravel(flat))
    if np.isnan(values[0]):
        args, kwargs = data
        task.svi.evaluate(state, *args, **kwargs)  # not compiled: it names the cause
    minimiser.check_deterministic(*values)
    at = lambda point: unravel(jnp.asarray(point, flat.dtype))  # noqa: E731

    def smaller(factors: starts.Factors) -> np.ndarray:
        start = multiplied_start(task.svi, unravel(flat), factors)
        return np.asarray(ravel_pytree(start)[0], np.float64)

    trainer = task.minimiser(
        loss.objective(flat, unravel),
        np.asarray(flat, np.float64),
        smaller,
        lambda point: task.values(at(point)),
        lambda point: task.terms(at(point), None, data, None),
        lambda point: float(task.score(at(point), None)),
    )
    start = trainer.outcome.point
    trainer.objective.units(start)  # compiles before the steps are timed; so does the next call
    is_few = start.size <= minimiser.MAX_DENSE_PARAMETERS
    is_dense = is_few and trainer.objective.blocks(start) is None
    if task.options.method == "newton" and is_dense:
        trainer.objective.hessian(start)
    return trainer
