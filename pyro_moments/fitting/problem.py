"""Evaluate a training's objective: weighted losses, ELBO terms, held-out score, check."""

from __future__ import annotations

import contextlib
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import pyro.util
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_inference import FitTask, restored
from moment_inference.objectives import SEED, Evaluations
from moment_inference.optimisation import (
    DeterministicLoss,
    Fit,
    PlateScaling,
    batches,
    weight_site,
)
from pyro_moments._host import tree_flatten, tree_unflatten
from pyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from pyro_moments.fitting.flat_loss import flat_loss
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


RANDOM = GlobalRandomState()
random_state_restored = partial(restored, RANDOM)


class Problem(FitTask):
    """A training's model, guide and objective, with the weights of its steps."""

    @cached_property
    def kl_weight(self) -> torch.Tensor | None:
        """The weight of the KL divergence while it warms up."""
        # A tensor, because the weight changes from step to step.
        return None if self.options.warm_up is None else torch.ones((), device="cpu")

    @cached_property
    def scaling(self) -> SiteScaling:
        """The handler of the model in a step."""
        return SiteScaling(self.plates, self.kl_weight)

    @cached_property
    def weighted(self) -> tuple[Any, Any]:
        """The model and the guide with the weights of a step."""
        model, guide = self.trained_model, self.guide
        if self.plates is self.kl_weight is None:
            return model, guide
        if isinstance(guide, Messenger):
            raise ValueError(
                f"{type(guide).__name__} runs the model itself, so that neither mini-batches nor "
                "a warm-up of the KL divergence reach it: use DVIGuide or AutoNormal"
            )
        scaled_guide = guide if self.kl_weight is None else SiteScaling(None, self.kl_weight)(guide)
        return self.scaling(model), scaled_guide

    def program(self, data: batches.Arguments) -> Program:
        """Return the program that is trained, with data."""
        return Program(self.trained_model, self.guide, *data)

    @cached_property
    def noise(self) -> NoiseScale | None:
        """A scale of the noise that the optimiser does not train, found at the start."""
        if self.options.precision is None:
            return None
        program = self.program(batches.first_arguments(self.source))
        return noise_scale(self.objective, program, self.options.precision == "profile")

    @cached_property
    def trained_objective(self) -> Any:
        """The objective with the best scale of the noise put into it, if it is profiled."""
        noise = self.noise
        return self.objective if noise is None or not noise.profiled else ProfiledELBO(noise)

    def with_noise(self, parameters: Parameters) -> Parameters:
        """Return parameters, and the scale of the noise at its best where the loss has it."""
        noise = self.noise
        if noise is None or not noise.profiled:
            return parameters
        noise.set_best(self.program(batches.first_arguments(self.source)))
        return parameters.joined(noise.parameters)

    def loss_and_grads(
        self, data: batches.Arguments, batch_size: int | None, kl_weight: float | None
    ) -> float:
        """Return a mini-batch's loss and add its gradients to ``.grad``; None: all data."""
        args, kwargs = data
        self.scaling.batch_size = batch_size
        if self.kl_weight is not None and kl_weight is not None:
            self.kl_weight.fill_(kl_weight)
        loss = self.trained_objective.loss_and_grads(*self.weighted, *args, **kwargs)
        if self.plates is not None:
            self.plates.check_observed()
        return loss

    def unweighted_loss(self) -> Any:
        """Return the user's loss of the first data, differentiable; it creates the parameters."""
        args, kwargs = batches.first_arguments(self.source)
        # Pyro's RenyiELBO has no differentiable_loss.
        evaluate = getattr(self.objective, "differentiable_loss", self.objective.loss)
        return evaluate(self.trained_model, self.guide, *args, **kwargs)

    def loss(self, data: batches.Arguments) -> float:
        """Return the loss of all data."""
        args, kwargs = data
        return self.trained_objective.loss(*self.weighted, *args, **kwargs)

    def terms(self, data: batches.Arguments, batch_size: int | None) -> dict[str, float]:
        """Return the ELBO's terms by site, without a KL weight; empty if there are none."""
        if not hasattr(self.objective, "site_terms"):
            return {}
        args, kwargs = data
        model = self.trained_model
        if self.plates is not None:
            scaling = SiteScaling(self.plates, None)
            scaling.batch_size = batch_size
            model = scaling(model)
        with random_state_restored():
            return self.objective.site_terms(model, self.guide, *args, **kwargs)

    def score(self) -> float:
        """Return the held-out log-likelihood."""
        leaves, structure = tree_flatten(self.held_out)

        def score(leaves: list[Any]) -> torch.Tensor:
            args, kwargs = tree_unflatten(leaves, structure)
            model = self.trained_model
            return log_predictive(self.propagation, model, self.guide, *args, **kwargs)

        with random_state_restored():
            return float(self.summed(score, leaves))

    def held_terms(self, fit: Fit) -> tuple[list[str], int] | None:
        """Return the sites with terms by held draws, and the number of draws; None if none."""
        found: dict[str, int] = {}
        noting = self.objective.with_held(held_sites=found)
        noting.loss(self.trained_model, self.guide, *self.source.args, **self.source.kwargs)
        return ([*found], max(found.values())) if found else None

    def losses_at(
        self, fit: Fit, objectives: list[Any]
    ) -> tuple[list[DeterministicLoss], np.ndarray]:
        """Return losses of all data by objectives, and a fit's parameters as a vector."""
        program = self.program((self.source.args, self.source.kwargs))
        parameters = Parameters.from_run(partial(program.loss, objectives[0]))
        losses = [flat_loss(objective, program, parameters) for objective in objectives]
        return losses, parameters.vector()

    def explain(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise UnsupportedMoments if arguments are not finite."""
        refuse_nonfinite_inputs(self.model, args, kwargs)

    def evaluations(self, params: Any, is_last: bool) -> Evaluations:
        """Return what evaluates the objective in closed form and by draws."""
        drawn: list[Any] = []
        self.scaling.batch_size = self.source.size
        pyro.set_rng_seed(SEED)

        # NumPyro needs the index of the call for its random key.
        @torch.no_grad()
        def particles(
            data: batches.Arguments, count: int, call_index: int
        ) -> tuple[np.ndarray, ...]:
            program = Program(*self.weighted, *data)
            if not drawn:
                drawn.append(_by_draws(self.objective, program, count))
            drawn[0].num_particles = count
            return tuple(part.double().cpu().numpy() for part in drawn[0].particle_terms(program))

        return Evaluations(particles, lambda data, call_index: self.loss(data), is_last)


def _by_draws(objective: Any, program: Program, count: int) -> Any:
    """Return an objective by draws of all but the last random map, or of all sites."""
    with contextlib.suppress(Exception):  # dependent sites, or an operation without exact moments
        if sites := objective.sites_to_draw(program):
            conditional = objective.by_draws(count, sites)
            conditional.particle_terms(program)
            return conditional
    return objective.by_draws(count)
