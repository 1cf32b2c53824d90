"""Draw from posteriors: guides, linear responses, finished chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.infer import MCMC
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.util import prune_subsample_sites

from moment_calculus.criticism.containers.draws import (
    Draws,
    FromApproximation,
    FromPosterior,
    NoDensity,
)
from moment_calculus.criticism.containers.resampling import draw_response
from moment_calculus.criticism.containers.wording import chains_not_run, no_posterior
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.predictions.site import checked_count
from pyro_moments.draws.model import map_over_draws
from pyro_moments.draws.sites import log_density, without_subsampling
from pyro_moments.fitting.parameters import has_float64, to_float64
from pyro_moments.objectives.alpha import check_density
from pyro_moments.objectives.base import Program
from pyro_moments.response.evaluation_context import SEEDS, EvaluationContext
from pyro_moments.response.linear_response import LinearResponse
from pyro_moments.response.problem import PyroProblem
from pyro_moments.sites.traces import bind, is_latent, is_sample


@dataclass(frozen=True)
class GuidePosterior:
    """The posterior of a trained guide, in a context with the trained parameters."""

    program: Program
    context: EvaluationContext

    @property
    def device(self) -> torch.device:
        """Return the device of the draws."""
        return self.context.device

    def draws(self, count: int) -> Draws:
        """Return draws of the latent sites, with the guide's log density if there is one."""
        with self.context():
            reason = self._without_density()
            density = _no_density if reason else log_density
            values, found = map_over_draws(partial(self._draw, density), {}, checked_count(count))
        origin = NoDensity(reason) if reason else FromApproximation(found[None])
        arrays = {name: value[None] for name, value in values.items()}
        return Draws(type(poutine.unwrap(self.program.guide)).__name__, arrays, origin)

    def _draw(
        self, density: Callable[[Any], torch.Tensor], _: Any
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        nodes = guide_nodes(self.program)
        samples = {name: site for name, site in nodes.items() if is_latent(site)}
        values = {
            name: site["value"]
            for name, site in samples.items()
            if not (site["infer"] or {}).get("is_auxiliary")
        }
        return values, density(site for site in nodes.values() if is_sample(site))

    def _without_density(self) -> str:
        """Return why there is no density; empty if there is one."""
        try:
            check_density(self.program, reparameterised=False)
        except UnsupportedMoments as error:
            return str(error)
        return ""


def _no_density(_: Any) -> torch.Tensor:
    return torch.zeros(())


def guide_nodes(program: Program) -> dict[str, Any]:
    """Return the sites of a run of the guide."""
    _, guide, args, named, _ = program
    unwrapped: Any = poutine.unwrap(guide)
    if isinstance(unwrapped, GuideMessenger):  # it runs the model itself
        guide(*args, **named)
        return unwrapped.get_traces()[1].nodes
    return prune_subsample_sites(poutine.trace(guide).get_trace(*args, **named)).nodes


@dataclass(frozen=True)
class ResponsePosterior:
    """The posterior of a linear response."""

    response: LinearResponse

    @property
    def context(self) -> EvaluationContext:
        """Return the context with the parameters of the linear response."""
        problem = self.response.problem
        assert isinstance(problem, PyroProblem)
        return problem.context

    @property
    def device(self) -> torch.device:
        """Return the device of the draws."""
        return self.context.device

    def draws(self, count: int) -> Draws:
        """Return draws of the latent sites."""
        generator = np.random.default_rng(int(torch.randint(SEEDS, ())))
        values, origin = draw_response(self.response, generator, checked_count(count))
        arrays = {name: value.detach().cpu().numpy()[None] for name, value in values.items()}
        return Draws("LinearResponse", arrays, origin)


@dataclass(frozen=True)
class ChainPosterior:
    """The posterior of finished chains of Pyro."""

    chains: MCMC
    context: EvaluationContext

    @property
    def device(self) -> torch.device:
        """Return the device of the draws."""
        return next(iter(self.chains.get_samples().values())).device

    def draws(self, count: int) -> Draws:
        """Return all draws of the chains; ``count`` is not used."""
        samples = self.chains.get_samples(group_by_chain=True)
        values = {name: value.detach().cpu().numpy() for name, value in samples.items()}
        shape = next(iter(values.values())).shape
        statistics = self._diverging(shape[0], shape[1])
        return Draws(type(self.chains.kernel).__name__, values, FromPosterior(), statistics)

    def _diverging(self, chains: int, draws: int) -> dict[str, np.ndarray]:
        """Return which draws diverged, by chain."""
        # MCMC.diagnostics() has this, too, but needs at least four draws of each chain.
        extra_fields: Any = self.chains._diagnostics
        if not all("divergences" in extra_fields[chain] for chain in range(chains)):
            return {}
        diverging = np.zeros((chains, draws), bool)
        for chain in range(chains):
            diverging[chain, extra_fields[chain]["divergences"]] = True
        return {"diverging": diverging}


def posterior_of(
    posterior: Any, model: Callable, args: tuple, named: Mapping[str, Any]
) -> GuidePosterior | ResponsePosterior | ChainPosterior:
    """Return the posterior of a guide, a result of ``fit``, a linear response or chains."""
    if isinstance(posterior, LinearResponse):
        return ResponsePosterior(posterior)
    if isinstance(posterior, MCMC):
        return _of_chains(posterior, model, args, named)
    if isinstance(posterior, Fit):
        return _of_guide(posterior.guide, model, args, named, posterior.params)
    if not callable(posterior):
        raise no_posterior(posterior, "Pyro")
    return _of_guide(posterior, model, args, named, None)


def _of_guide(
    guide: Any, model: Callable, args: tuple, named: Mapping[str, Any], params: Any
) -> GuidePosterior:
    bind(guide, model)
    double = has_float64(guide) if params is None else _is_double(params)
    args, named = (to_float64(args), to_float64(dict(named))) if double else (args, dict(named))
    program = Program(model, guide, args, named)

    def run() -> None:
        nodes = guide_nodes(program).items()
        values = {name: site["value"] for name, site in nodes if is_latent(site)}
        poutine.condition(model, data=values)(*args, **named)

    context = EvaluationContext.of(run, (model, guide), double, params)
    return GuidePosterior(program, context)


def _of_chains(
    chains: MCMC, model: Callable, args: tuple, named: Mapping[str, Any]
) -> ChainPosterior:
    if chains._samples is None:
        raise chains_not_run()
    double = _is_double(chains.get_samples())
    args, named = (to_float64(args), to_float64(dict(named))) if double else (args, dict(named))
    first = {name: value[0] for name, value in chains.get_samples().items()}

    def run() -> None:
        with without_subsampling():
            poutine.condition(model, data=first)(*args, **named)  # improper priors have no draws

    return ChainPosterior(chains, EvaluationContext.of(run, (model,), double))


def _is_double(tensors: Mapping[str, torch.Tensor]) -> bool:
    return any(tensor.dtype is torch.float64 for tensor in tensors.values())
