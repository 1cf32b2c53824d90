"""Evaluate a training's objective: weighted losses, ELBO terms, held-out score, check."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyro
import pyro.util
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.predictions.blocks import Rows, rows_of_a_sum, sum_of_rows
from moment_calculus.rulebooks import propagation_of
from moment_inference.objectives.by_draws import SEED, Evaluations, loss_by_draws
from moment_inference.optimisation.batches import AllData, Arguments
from moment_inference.optimisation.options import Options
from moment_inference.optimisation.outcome import ByDraws, Fit
from moment_inference.optimisation.weighting import PlateScaling, weight_site
from pyro_moments._host import tree_flatten, tree_unflatten
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.fitting.precision import NoiseScale, ProfiledELBO, noise_scale
from pyro_moments.objectives.base import Program
from pyro_moments.prediction.predict import log_predictive


class SiteScaling(Messenger):
    """Handler that rescales a mini-batch to the full data and weights latent sites."""

    def __init__(self, plates: PlateScaling | None, kl_weight: torch.Tensor | None) -> None:
        super().__init__()
        self.plates, self.kl_weight = plates, kl_weight
        self.batch_size: int | None = None  # None: all data

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg) or (msg["infer"] or {}).get("_deterministic"):
            return
        weight_site(msg, self.plates, self.batch_size, self.kl_weight, _with_full_size)


def _with_full_size(frame: Any, rows: Any) -> Any:
    return frame._replace(full_size=rows)


class Problem:
    """A training's model, guide, objective and held-out data."""

    def __init__(
        self,
        objective: Any,
        model: Callable,
        guide: Callable,
        plates: PlateScaling | None,
        kl_warm_up: bool,
        held_out: Arguments | None,
    ) -> None:
        self.objective, self.model, self.guide = objective, model, guide
        self.held_out = held_out
        self._at_once: tuple[int | None] | None = None  # rows of a score; None: not yet known
        self.noise: NoiseScale | None = None  # a scale that the optimiser does not train
        # A tensor, because the weight changes from step to step.
        self.kl_weight = torch.ones((), device="cpu") if kl_warm_up else None
        self.scaling = SiteScaling(plates, self.kl_weight)
        weighted = plates is not None or kl_warm_up
        if weighted and isinstance(guide, Messenger):
            raise ValueError(
                f"{type(guide).__name__} runs the model itself, so that neither mini-batches nor "
                "a warm-up of the KL divergence reach it: use DVIGuide or AutoNormal"
            )
        self.weighted_model = self.scaling(model) if weighted else model
        self.weighted_guide = SiteScaling(None, self.kl_weight)(guide) if kl_warm_up else guide

    def hold_noise(self, mode: str, first: Arguments) -> None:
        """Find the scale of the noise, and keep it from the optimiser."""
        whole = first if mode == "profile" else None
        self.noise = noise_scale(self.objective, self.model, self.guide, first, whole)
        if whole is not None:
            self.objective = ProfiledELBO(self.objective, self.noise)

    def with_noise(self, parameters: Parameters) -> Parameters:
        """Return parameters, and the scale of the noise at its best where the loss has it."""
        noise = self.noise
        if noise is None or noise.profiled is None:
            return parameters
        noise.set_best()
        return parameters.joined(noise.parameters)

    def loss_and_grads(
        self, data: Arguments, batch_size: int | None, kl_weight: float | None
    ) -> float:
        """Return a mini-batch's loss and add its gradients to ``.grad``; None: all data."""
        args, kwargs = data
        self.scaling.batch_size = batch_size
        if self.kl_weight is not None and kl_weight is not None:
            self.kl_weight.fill_(kl_weight)
        model, guide = self.weighted_model, self.weighted_guide
        loss = self.objective.loss_and_grads(model, guide, *args, **kwargs)
        if self.scaling.plates is not None:
            self.scaling.plates.check_observed()
        return loss

    def unweighted_loss(self, data: Arguments) -> Any:
        """Return the unweighted, differentiable loss; the call creates the parameters."""
        args, kwargs = data
        # Pyro's RenyiELBO has no differentiable_loss.
        evaluate = getattr(self.objective, "differentiable_loss", self.objective.loss)
        return evaluate(self.model, self.guide, *args, **kwargs)

    def loss(self, data: Arguments) -> float:
        """Return the loss of all data."""
        args, kwargs = data
        return self.objective.loss(self.weighted_model, self.weighted_guide, *args, **kwargs)

    def terms(self, data: Arguments, batch_size: int | None) -> dict[str, float]:
        """Return the ELBO's terms by site, without a KL weight; empty if there are none."""
        objective = getattr(self.objective, "objective", self.objective)
        if not hasattr(objective, "site_terms"):
            return {}
        args, kwargs = data
        model, plates = self.model, self.scaling.plates
        if plates is not None:
            scaling = SiteScaling(plates, None)
            scaling.batch_size = batch_size
            model = scaling(model)
        with random_state_restored():
            return objective.site_terms(model, self.guide, *args, **kwargs)

    def score(self) -> float:
        """Return the held-out log-likelihood."""
        assert self.held_out is not None
        objective = getattr(self.objective, "objective", self.objective)
        propagation = getattr(objective, "propagation", None) or propagation_of(None, "exact")
        leaves, structure = tree_flatten(self.held_out)

        def score(leaves: list[Any]) -> torch.Tensor:
            args, kwargs = tree_unflatten(leaves, structure)
            return log_predictive(propagation, self.model, self.guide, *args, **kwargs)

        rows = Rows.of(leaves, score)
        with random_state_restored():
            self._at_once = self._at_once or (rows_of_a_sum(rows, propagation.memory_limit),)
            return float(sum_of_rows(rows, *self._at_once))


class GlobalRandomState:
    """The random states of torch, Python and NumPy, on which Pyro programs depend."""

    def get(self) -> Any:
        """Return the state as lists, arrays and numbers."""
        state = pyro.util.get_rng_state()
        kind, *rest = state["numpy"]
        version, internal, gauss = state["random"]
        return {
            "torch": state["torch"],
            "random": [version, [*internal], gauss],
            "numpy": [kind, *rest],
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def set(self, state: Any) -> None:
        """Restore a state that :meth:`get` has returned."""
        version, internal, gauss = state["random"]
        pyro.util.set_rng_state(
            {
                "torch": torch.as_tensor(state["torch"], device="cpu"),
                "random": (version, tuple(internal), gauss),
                "numpy": tuple(state["numpy"]),
            }
        )
        if state["cuda"]:
            states = [torch.as_tensor(part, device="cpu") for part in state["cuda"]]
            torch.cuda.set_rng_state_all(states)


@contextlib.contextmanager
def random_state_restored() -> Iterator[None]:
    """Leave the global random state as it was."""
    state = GlobalRandomState()
    before = state.get()
    try:
        yield
    finally:
        state.set(before)


def trained_loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, select_rows: Callable
) -> ByDraws:
    """Return the trained loss by Monte Carlo; preserve the global random state."""

    def evaluations_on(part: AllData, is_last: bool) -> Evaluations:
        if part is source:
            return _evaluations_of(problem, part, is_last)
        plates = PlateScaling(options.rows_of(part), options.plate)
        subset_problem = Problem(
            objective=problem.objective,
            model=problem.model,
            guide=problem.guide,
            plates=plates,
            kl_warm_up=False,
            held_out=None,
        )
        return _evaluations_of(subset_problem, part, is_last)

    with random_state_restored(), torch.no_grad():
        pyro.set_rng_seed(SEED)
        return loss_by_draws(fit, problem.objective, source, options, select_rows, evaluations_on)


def _evaluations_of(problem: Problem, source: AllData, is_last: bool) -> Evaluations:
    drawn: list[Any] = []

    # NumPyro needs the index of the call for its random key.
    def particles(data: Arguments, count: int, call_index: int) -> tuple[np.ndarray, ...]:
        problem.scaling.batch_size = source.size
        program = Program(problem.weighted_model, problem.weighted_guide, *data)
        if not drawn:
            drawn.append(_by_draws(problem.objective, program, count))
        drawn[0].num_particles = count
        return tuple(part.double().cpu().numpy() for part in drawn[0].particle_terms(program))

    def loss(data: Arguments, call_index: int) -> float:
        problem.scaling.batch_size = source.size
        return problem.loss(data)

    return Evaluations(particles, loss, is_last)


def _by_draws(objective: Any, program: Program, count: int) -> Any:
    """Return an objective by draws of all but the last random map, or of all sites."""
    with contextlib.suppress(Exception):  # dependent sites, or an operation without exact moments
        if sites := objective.sites_to_draw(program):
            conditional = objective.by_draws(count, sites)
            conditional.particle_terms(program)
            return conditional
    return objective.by_draws(count)
