"""Base classes of the objectives: losses with gradients, options, and runs of particles."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer.elbo import ELBO
from pyro.infer.util import is_validation_enabled, torch_item
from pyro.poutine import Trace
from pyro.util import check_model_guide_match, warn_if_inf, warn_if_nan

from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import RuleBook, check_draws
from moment_inference import SharedDrawNeeded
from moment_inference.objectives import choices, data_plates, sites_to_draw
from pyro_moments._host import tree_flatten, tree_map
from pyro_moments.compiled.compiled_loss import CompiledLoss
from pyro_moments.evaluation.failure_causes import diagnose_errors, observe
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.evaluation.uncertain_inputs import at_means
from pyro_moments.likelihoods.structure import random_tensors
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.particles.undrawn import Particle
from pyro_moments.sites.drawn_traces import drawn_traces
from pyro_moments.sites.held_terms import HeldTerms
from pyro_moments.sites.local_rows import warn_of_local_rows
from pyro_moments.sites.terms import without_wrappers
from pyro_moments.sites.traces import bind, initialise_parameters, is_latent, moment_traces

FromTraces = Callable[[Trace, Trace], Any]


class Program(NamedTuple):
    """A model and a guide with their arguments."""

    model: Any
    guide: Any
    args: tuple
    kwargs: dict[str, Any]
    parameters: Mapping[str, Any] | None = None  # trained values by name; None: the current ones
    # Finds the plates of the data in the model's trace, along which rows may have noise
    # of their own. If None, these may be all axes of a site's log-density, as in a sum of
    # expectations.
    data: Callable[[Trace], data_plates.DataPlates] | None = None

    @property
    def of_model(self) -> tuple[Any, tuple, dict[str, Any]]:
        """Return the model and its arguments."""
        return self.model, self.args, self.kwargs

    def loss(self, objective: Any) -> torch.Tensor:
        """Return a loss at the current parameters as a tensor that can be differentiated."""
        model, guide, args, kwargs, *_ = self
        return objective.differentiable_loss(model, guide, *args, **kwargs)

    def run(self, particle: Particle, seed: int | None = None) -> tuple[Trace, Trace]:
        """Return the traces of model and guide for one particle."""
        return drawn_traces(particle, *self[:4], seed=seed, data=self.data)


class ValidateOnce:
    """Validates programs once for each structure: model, guide and shapes of the arguments."""

    def __init__(self) -> None:
        self.validated_programs: dict[
            Any, Any
        ] = {}  # programs by structure, kept alive for their ids

    def __reduce__(self) -> tuple:
        return type(self), ()  # a copy starts anew, because its programs have other ids

    def __call__(self, program: Program) -> tuple:
        """Return the structure of a program; validate it at the first call."""
        structure = _structure(program)
        if structure not in self.validated_programs:
            self.validate(program)
            self.validated_programs[structure] = program[:2]
        return structure

    def validate(self, program: Program) -> None:
        """Run a program on samples, with Pyro's checks."""
        guide, (args, kwargs) = program.guide, at_means(*program[2:4])
        unwrapped = poutine.unwrap(guide)
        if isinstance(unwrapped, poutine.messenger.Messenger):  # it runs the model itself
            initialise_parameters(unwrapped, args, kwargs)
            return
        with torch.no_grad(), poutine.block():
            guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
            replayed = poutine.replay(program.model, trace=guide_trace)
            with diagnose_errors(program.model, args, kwargs, guide):
                model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
            observe(model_trace.nodes, program.model, args, kwargs)
            if is_validation_enabled():
                check_model_guide_match(model_trace, guide_trace)
                model_trace.compute_log_prob(_has_density)


def _has_density(name: str, site: Any) -> bool:
    return not getattr(without_wrappers(site["fn"]), "is_improper", False)


class ParticleRunner:
    """Runs programs with draws of their latent sites.

    A run finds out which sites have to be drawn once for all rows, and whether particles
    fill arrays. This is remembered for each structure, so that later runs need no second
    attempt.
    """

    def __init__(self, is_mean: bool) -> None:
        # With is_mean, the means of the sites replace their draws.
        self.is_mean, self.validate = is_mean, ValidateOnce()
        self.shared_draws: dict[Any, frozenset[str]] = {}
        self.vmap_runner: dict[Any, VmapRunner] = {}

    def __getstate__(self) -> dict:
        """Return the state without what was remembered, because copied programs have other ids."""
        return self.__dict__ | {"shared_draws": {}, "vmap_runner": {}}

    def __call__(self, program: Program, consume: FromTraces, count: int) -> Any:
        """Return what ``consume`` makes of each particle's traces, [particles, ...]."""
        structure = self.validate(program)
        vmap_runner = self.vmap_runner.setdefault(structure, VmapRunner())
        while True:
            shared_draws = self.shared_draws.setdefault(structure, frozenset())
            try:
                return self._run(program, consume, count, shared_draws, vmap_runner)
            except SharedDrawNeeded as error:
                self.shared_draws[structure] = shared_draws | error.sites

    def _run(
        self,
        program: Program,
        consume: FromTraces,
        count: int,
        shared_draws: frozenset[str],
        vmap_runner: VmapRunner,
    ) -> Any:
        if count == 1:
            with full_precision():
                seed = int(torch.randint(2**31, (), device="cpu")) if self.is_mean else None
                result = consume(*program.run(Particle(shared_draws, self.is_mean), seed))
            return tree_map(lambda part: part[None], result)
        return vmap_runner(lambda seed: consume(*program.run(Particle(shared_draws), seed)), count)


def _structure(program: Program) -> tuple:
    """Return what decides how a program runs, as far as this can be known from a call."""
    leaves, tree = tree_flatten((program.args, program.kwargs))
    kinds = tuple(
        (leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in leaves
    )
    training = (getattr(part, "training", None) for part in (program.model, program.guide))
    return id(program.model), id(program.guide), str(tree), kinds, *training


def is_finite(term: torch.Tensor) -> bool:
    """Return whether a scalar is finite; this waits for the device."""
    return math.isfinite(torch_item(term))


class Loss(ELBO):
    """A loss that is differentiated as it is; a subclass defines it in ``_eager``."""

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _get_trace(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> Any:
        raise NotImplementedError

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss as a tensor that can be differentiated.

        Args:
            model: Pyro model.
            guide: Pyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.
        """
        return self._eager(model, guide, *args, **kwargs)

    def loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """Return the loss as a number; arguments as in :meth:`differentiable_loss`."""
        with torch.no_grad():
            return torch_item(self.differentiable_loss(model, guide, *args, **kwargs))

    def loss_and_grads(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """Return the loss as a number, and add its gradients to the parameters' ``grad``."""
        value = torch_item(self._backward(model, guide, args, kwargs))
        warn_if_nan(value, "loss")
        warn_if_inf(value, "loss")
        return value

    def _backward(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> Any:
        loss = self._eager(model, guide, *args, **kwargs)
        if getattr(loss, "requires_grad", False):
            with full_precision():
                loss.backward(retain_graph=self.retain_graph)
        return loss


class Objective(choices.Expectations, Loss):
    """An objective that is made of terms of every site, analytically or over particles."""

    def __init__(
        self,
        *,
        propagation: str = "analytic",
        covariance: str | None = None,
        rules: str | RuleBook = "exact",
        categorical: str | None = None,
        categorical_draws: int = 1,
        sample_sites: Collection[str] = (),
        num_particles: int = 1,
        memory_limit: float | None = None,
        compiled: bool = False,
        held_draws: int = 0,
        **options: Any,
    ) -> None:
        check_draws(sample_sites, num_particles)
        choices.check_propagation(propagation, sample_sites, num_particles)
        choices.check_trainable(categorical)
        choices.check_compiled(compiled, propagation)
        choices.check_held(held_draws, propagation, sample_sites, compiled)
        _check_options(options)
        super().__init__(num_particles=num_particles, **options)
        self.propagation_kind, self.sample_sites = propagation, frozenset(sample_sites)
        self.held_draws = held_draws
        self.propagation = propagation_of(
            covariance, rules, categorical, memory_limit, categorical_draws
        )
        choices.check_terms(self.propagation.rulebook, propagation == "analytic")
        self.compiled = CompiledLoss(self._eager, self._settings) if compiled else None
        self.runner = ParticleRunner(propagation == "mean")
        self.at_once: VmapRunner | None = None  # of draws of ``sample_sites``, without validation

    def _settings(self) -> tuple:
        return self.propagation, self.sample_sites, self.num_particles

    def _get_trace(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> tuple[Trace, Trace]:
        propagation, sampled = self.propagation, self.sample_sites
        traces = moment_traces(
            model, guide, args, kwargs, propagation, sampled, holds=self.held_draws > 0
        )
        if self.held_draws:
            held = HeldTerms(self, model, guide, args, kwargs)
            site: Any
            for site in traces[0].nodes.values():
                site["held"] = held
        if is_validation_enabled():
            check_model_guide_match(*traces, self.max_plate_nesting)
            warn_of_local_rows(traces[0])
        return traces

    def by_draws(self, count: int, sites: Collection[str] = ()) -> Any:
        """Return the same objective with latent sites that are drawn.

        Args:
            count: number of particles.
            sites: those that are drawn, with exact moments of the others; by default all
                sites are drawn.
        """
        drawn = super().by_draws(count, sites)
        drawn.compiled, drawn.runner = None, ParticleRunner(False)
        drawn.at_once = VmapRunner()
        return drawn

    def sites_to_draw(self, program: Program) -> frozenset[str]:
        """Return the sites given which the rest has a closed form, see :mod:`.last_map`."""
        bind(program.guide, program.model)
        trace, _ = self._get_trace(*program[:4])
        sites = {n: site for n, site in trace.nodes.items() if site["type"] == "sample"}
        parameters = [
            unwrap(part) for site in sites.values() for part in random_tensors(site["fn"])
        ]
        return sites_to_draw(parameters, [n for n, site in sites.items() if is_latent(site)])

    def particles(self, program: Program, consume: FromTraces) -> Any:
        """Return what ``consume`` makes of the traces of each particle, on a leading axis.

        Args:
            program: model and guide with their arguments.
            consume: from the traces of model and guide to a pytree of tensors.
        """
        bind(program.guide, program.model)
        if self.propagation_kind != "analytic":
            return self.runner(program, consume, self.num_particles)
        if self.at_once is not None:
            traced = lambda _: consume(*self._get_trace(*program[:4]))  # noqa: E731
            return self.at_once(traced, self.num_particles)
        results = []
        for traces in self._get_traces(program.model, program.guide, program.args, program.kwargs):
            with full_precision():
                results.append(consume(*traces))
        if len(results) == 1:
            return tree_map(lambda part: part.unsqueeze(0), *results)
        return tree_map(lambda *parts: torch.stack(parts), *results)

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss as a tensor that can be differentiated; arguments as in :class:`Loss`."""
        if self.compiled is not None:
            return self.compiled.differentiable(model, guide, args, kwargs)
        return self._eager(model, guide, *args, **kwargs)

    def _backward(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> Any:
        if self.compiled is None:
            return super()._backward(model, guide, args, kwargs)
        loss = self.compiled.with_gradients(model, guide, args, kwargs)
        if loss is None:
            return super()._backward(model, guide, args, kwargs)
        if not is_finite(loss) and is_validation_enabled():
            self._eager(model, guide, *args, **kwargs)  # raises an error that names the cause
        return loss


def _check_options(options: dict[str, Any]) -> None:
    if options.get("vectorize_particles"):
        raise ValueError(
            "vectorize_particles=True is not supported: without sample_sites one pass is exact, "
            "with them the num_particles draws are looped over; propagation='sampled' vectorises "
            "its particles by itself"
        )
