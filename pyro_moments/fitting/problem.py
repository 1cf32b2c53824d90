"""Model, guide and objective of a training, weights of a step, check by draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.util
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.objectives.by_draws import SEED, Evaluations, loss_by_draws
from moment_calculus.optimisation.batches import AllData, Arguments
from moment_calculus.optimisation.options import Options
from moment_calculus.optimisation.outcome import ByDraws, Fit
from moment_calculus.optimisation.weighting import PlateScaling, weight_site
from pyro_moments.objectives.base import Program
from pyro_moments.prediction.predict import log_predictive


class Weighting(Messenger):
    """Handler that scales a mini-batch up to all rows, and weights the latent sites."""

    def __init__(self, plates: PlateScaling | None, kl_weight: torch.Tensor | None) -> None:
        super().__init__()
        self.plates, self.kl_weight = plates, kl_weight
        self.batch: int | None = None  # rows of the mini-batch

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg) or (msg["infer"] or {}).get("_deterministic"):
            return
        weight_site(msg, self.plates, self.batch, self.kl_weight, _enlarged)


def _enlarged(frame: Any, rows: Any) -> Any:
    return frame._replace(full_size=rows)


class Problem:
    """Model, guide and objective, with held-out data."""

    def __init__(
        self,
        objective: Any,
        model: Callable,
        guide: Callable,
        plates: PlateScaling | None,
        warms_up: bool,
        held_out: Arguments | None,
    ) -> None:
        self.objective, self.model, self.guide = objective, model, guide
        self.held_out = held_out
        # A tensor, because the weight changes from step to step.
        self.kl_weight = torch.ones(()) if warms_up else None
        self.weighting = Weighting(plates, self.kl_weight)
        weighted = plates is not None or warms_up
        if weighted and isinstance(guide, Messenger):
            raise ValueError(
                f"{type(guide).__name__} runs the model itself, so that neither mini-batches nor "
                "a warm-up of the KL divergence reach it: use DVIGuide or AutoNormal"
            )
        self.weighted_model = self.weighting(model) if weighted else model
        self.weighted_guide = Weighting(None, self.kl_weight)(guide) if warms_up else guide

    def loss_and_grads(self, data: Arguments, batch: int | None, kl_weight: float | None) -> float:
        """Return the loss of a mini-batch (None: of all data), and add its gradients."""
        args, named = data
        self.weighting.batch = batch
        if self.kl_weight is not None and kl_weight is not None:
            self.kl_weight.fill_(kl_weight)
        model, guide = self.weighted_model, self.weighted_guide
        loss = self.objective.loss_and_grads(model, guide, *args, **named)
        if self.weighting.plates is not None:
            self.weighting.plates.check_observed()
        return loss

    def first_loss(self, data: Arguments) -> Any:
        """Return the unweighted differentiable loss; this makes the parameters."""
        args, named = data
        return self.objective.differentiable_loss(self.model, self.guide, *args, **named)

    def loss(self, data: Arguments) -> float:
        """Return the loss of all data."""
        args, named = data
        return self.objective.loss(self.weighted_model, self.weighted_guide, *args, **named)

    def terms(self, data: Arguments, batch: int | None) -> dict[str, float]:
        """Return the terms of the ELBO by site; empty if the objective has none."""
        if not hasattr(self.objective, "site_terms"):
            return {}
        args, named = data
        self.weighting.batch = batch
        with random_state_restored():
            return self.objective.site_terms(self.weighted_model, self.guide, *args, **named)

    def score(self) -> float:
        """Return the held-out log-likelihood."""
        assert self.held_out is not None
        args, named = self.held_out
        propagation = getattr(self.objective, "propagation", None)
        with random_state_restored():
            return float(log_predictive(propagation, self.model, self.guide, *args, **named))


class random_state_restored:
    """Leaves the global random state as it was."""

    def __enter__(self) -> None:
        self._before = GlobalRandomState().get()

    def __exit__(self, *error: Any) -> None:
        GlobalRandomState().set(self._before)


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
                "torch": torch.as_tensor(state["torch"]),
                "random": (version, tuple(internal), gauss),
                "numpy": tuple(state["numpy"]),
            }
        )
        if state["cuda"]:
            torch.cuda.set_rng_state_all([torch.as_tensor(part) for part in state["cuda"]])


def trained_loss_by_draws(
    problem: Problem, source: AllData, options: Options, fit: Fit, take: Callable
) -> ByDraws:
    """Return the trained loss by draws; the global random state stays as it was."""

    def evaluations(part: AllData, is_last: bool) -> Evaluations:
        if part is source:
            return _evaluations(problem, part, is_last)
        plates = PlateScaling(options.rows_of(part), options.plate)
        of_rows = Problem(problem.objective, problem.model, problem.guide, plates, False, None)
        return _evaluations(of_rows, part, is_last)

    with random_state_restored(), torch.no_grad():
        pyro.set_rng_seed(SEED)
        return loss_by_draws(fit, problem.objective, source, options, take, evaluations)


def _evaluations(problem: Problem, source: AllData, is_last: bool) -> Evaluations:
    objectives: dict[int, Any] = {}

    def particles(data: Arguments, count: int, turn: int) -> tuple[np.ndarray, ...]:
        sampled = objectives.setdefault(count, problem.objective.by_draws(count))
        problem.weighting.batch = source.size
        program = Program(problem.weighted_model, problem.weighted_guide, *data)
        return tuple(part.double().cpu().numpy() for part in sampled.particle_terms(program))

    def loss(data: Arguments, turn: int) -> float:
        problem.weighting.batch = source.size
        return problem.loss(data)

    return Evaluations(particles, loss, is_last)
