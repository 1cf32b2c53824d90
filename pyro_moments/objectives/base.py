"""Base classes of the objectives: losses with gradients, options and particles."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from pyro.infer.elbo import ELBO
from pyro.infer.util import is_validation_enabled, torch_item
from pyro.poutine import Trace
from pyro.util import check_model_guide_match, warn_if_inf, warn_if_nan
from torch.utils import _pytree as pytree

from moment_calculus.numerics.rulebook import RuleBook, check_draws
from moment_calculus.objectives.options import check_compiled, check_propagation
from moment_calculus.rulebooks import propagation_of
from pyro_moments.compiled.compiled_loss import CompiledLoss
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.objectives.particles import ParticleRunner, Program
from pyro_moments.sites.traces import bind, moment_traces

FromTraces = Callable[[Trace, Trace], Any]


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


class Objective(Loss):
    """An objective that is made of terms of every site, analytically or over particles."""

    alpha = 0.0  # of the α energy that this objective is; zero is the ELBO

    def __init__(
        self,
        *,
        propagation: str = "analytic",
        covariance: str = "full",
        rules: str | RuleBook = "exact",
        categorical: str = "points",
        categorical_draws: int = 1,
        sample_sites: Collection[str] = (),
        num_particles: int = 1,
        memory_limit: float | None = None,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        check_draws(sample_sites, num_particles)
        check_propagation(propagation, sample_sites, num_particles)
        check_compiled(compiled, propagation)
        _check_options(options)
        super().__init__(num_particles=num_particles, **options)
        self.propagation_kind, self.sample_sites = propagation, frozenset(sample_sites)
        self.propagation = propagation_of(
            covariance, rules, categorical, memory_limit, categorical_draws
        )
        self.compiled = CompiledLoss(self._eager, self._settings) if compiled else None
        self.runner = ParticleRunner(propagation == "mean")

    def _settings(self) -> tuple:
        return self.propagation, self.sample_sites, self.num_particles

    def _get_trace(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> tuple[Trace, Trace]:
        propagation, sampled = self.propagation, self.sample_sites
        traces = moment_traces(model, guide, args, kwargs, propagation, sampled)
        if is_validation_enabled():
            check_model_guide_match(*traces, self.max_plate_nesting)
        return traces

    def by_draws(self, count: int) -> Any:
        """Return the same objective with latent sites that are drawn.

        Args:
            count: number of particles.
        """
        drawn = copy.copy(self)
        drawn.propagation_kind, drawn.num_particles, drawn.compiled = "sampled", count, None
        drawn.runner = ParticleRunner(False)
        return drawn

    def particle_terms(self, program: Program) -> tuple[torch.Tensor, ...]:
        """Return the arguments of ``energy``: the terms of data and latent sites, and a scale.

        Each has a leading axis of particles.
        """
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Return whether anything is drawn besides subsamples."""
        by_logits = self.propagation.categorical == "sample"
        return self.propagation_kind == "sampled" or bool(self.sample_sites) or by_logits

    @property
    def in_closed_form(self) -> bool:
        """Return whether expectations are computed from moments alone."""
        return self.propagation_kind == "analytic" and not self.draws

    def particles(self, program: Program, consume: FromTraces) -> Any:
        """Return what ``consume`` makes of the traces of each particle, on a leading axis.

        Args:
            program: model and guide with their arguments.
            consume: from the traces of model and guide to a pytree of tensors.
        """
        bind(program.guide, program.model)
        if self.propagation_kind != "analytic":
            return self.runner(program, consume, self.num_particles)
        results = []
        for traces in self._get_traces(program.model, program.guide, program.args, program.kwargs):
            with full_precision():
                results.append(consume(*traces))
        if len(results) == 1:
            return pytree.tree_map(lambda part: part.unsqueeze(0), *results)
        return pytree.tree_map(lambda *parts: torch.stack(parts), *results)

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
