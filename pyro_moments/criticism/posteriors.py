"""Posteriors of Pyro: guides, linear responses and finished chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.infer import MCMC
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.util import prune_subsample_sites

from moment_calculus import UnsupportedMoments
from moment_calculus.numerics import to_numpy
from moment_calculus.predictions import checked_count
from moment_inference.criticism import Draws, Posterior, missing_chains_error, posterior_type_error
from moment_inference.optimisation import Fit
from moment_inference.response import Problem
from pyro_moments.draws.model import PyroModel, log_density, map_over_draws
from pyro_moments.fitting.evaluation_context import SEED_LIMIT, EvaluationContext
from pyro_moments.fitting.parameters import has_float64, to_float64
from pyro_moments.objectives.base import Program
from pyro_moments.objectives.densities import check_density
from pyro_moments.prediction.predict import predict_by
from pyro_moments.response.linear_response import LinearResponse
from pyro_moments.response.nested import Nested
from pyro_moments.response.program import TrainedProgram
from pyro_moments.sites.subsamples import without_subsampling
from pyro_moments.sites.traces import bind, is_latent, is_sample


@dataclass(frozen=True)
class PyroPosterior(Posterior):
    """A guide, a linear response or finished chains, in a context with its parameters."""

    program: Program  # of which the arguments may have another precision
    context: EvaluationContext
    draw: Callable[[int], Draws]
    device: torch.device
    guide: Any = None

    framework, response_type = "Pyro", LinearResponse

    def model_context(self) -> Any:
        """Return a context in which the model runs with the trained parameters."""
        return self.context()

    def draws(self, count: int) -> Draws:
        """Return draws of the latent sites; of chains all."""
        return self.draw(count)

    def generator(self) -> np.random.Generator:
        """Return a generator that continues torch's random numbers."""
        return np.random.default_rng(int(torch.randint(SEED_LIMIT, (), device="cpu")))

    def model(self, example_draw: Any, batch_size: int | None = None) -> PyroModel:
        """Return the model with its arguments."""
        program = self._with_arguments(self.program.args, self.program.kwargs)
        return PyroModel(program, example_draw, self.device, batch_size)

    def with_arguments(self, model: Any, args: tuple, named: Mapping[str, Any]) -> PyroModel:
        """Return the model with other arguments."""
        return replace(model, program=self._with_arguments(args, named))

    def _with_arguments(self, args: tuple, kwargs: Mapping[str, Any]) -> Program:
        args, kwargs = self.context.cast_arguments(args, kwargs)
        return self.program._replace(args=args, kwargs=kwargs)

    def problem(self, objective: Any) -> Problem:
        """Return guide and model at the trained parameters."""
        return Problem(TrainedProgram.of(self.program, objective, self.context.use_float64))

    def with_approximation(self, other: Any) -> PyroPosterior:
        """Return a linear response, or chains, with the same model and arguments."""
        return posterior_of(other, *self.program.of_model, self.context.use_float64)

    def predict(self, test: tuple | None, objective: Any) -> dict[str, Any]:
        """Return the guide's predictions by site, as of an objective."""
        model, guide, args, named, *_ = self.program
        if test is not None:
            args, named = self.context.cast_arguments(test, {})
        with self.context():
            return predict_by(objective, model, guide, args, named)

    def sample(self, prediction: Any, count: int) -> np.ndarray:
        """Return draws of a prediction."""
        with self.context():
            return prediction.sample(count).cpu().numpy()


def posterior_of(
    posterior: Any,
    model: Callable,
    args: tuple,
    named: Mapping[str, Any],
    double: bool = False,  # whether chains in single precision are evaluated in double
) -> PyroPosterior:
    """Return the posterior of any result: of ``fit``, ``nested``, a guide, a response, chains."""
    program = Program(model, posterior, args, dict(named))
    if isinstance(posterior, LinearResponse):
        return _response_source(posterior, program)
    if isinstance(posterior, Nested):
        return _nested_source(posterior, program)
    if isinstance(posterior, MCMC):
        return _chains_source(posterior, program, double)
    if isinstance(posterior, Fit):
        # The guide itself may be in another precision.
        with posterior.context() if posterior.context else nullcontext():
            fitted = program._replace(guide=posterior.guide, parameters=posterior.params)
            return _guide_source(fitted)
    if not callable(posterior):
        raise posterior_type_error(posterior, "Pyro")
    return _guide_source(program)


def _response_source(response: LinearResponse, program: Program) -> PyroPosterior:
    context: Any = response.problem.program.evaluation

    def draws(count: int) -> Draws:
        generator = np.random.default_rng(int(torch.randint(SEED_LIMIT, (), device="cpu")))
        return Draws.of_response(response, generator, checked_count(count))

    return PyroPosterior(program, context, draws, context.device)


def _nested_source(posterior: Nested, program: Program) -> PyroPosterior:
    program = _in_precision(program, double=True)
    one = _nested_draws(posterior, 1).first
    draw = {name: torch.as_tensor(value, device=posterior.device) for name, value in one.items()}
    context = _context_of_draw(program, draw, double=True)
    draws = partial(_nested_draws, posterior)
    return PyroPosterior(program, context, draws, context.device, posterior)


def _nested_draws(posterior: Nested, count: int) -> Draws:
    generator = np.random.default_rng(int(torch.randint(SEED_LIMIT, (), device="cpu")))
    values = posterior.plain_draws(generator, checked_count(count))
    return Draws("Nested", {name: value[None] for name, value in values.items()})


def _in_precision(program: Program, double: bool) -> Program:
    if not double:
        return program
    return program._replace(args=to_float64(program.args), kwargs=to_float64(program.kwargs))


def _guide_source(program: Program) -> PyroPosterior:
    guide, params = program.guide, program.parameters
    bind(guide, program.model)
    double = has_float64(guide) if params is None else _is_double(params)
    program = _in_precision(program, double)

    def run() -> None:
        sites = guide_nodes(program).items()
        values = {name: site["value"] for name, site in sites if is_latent(site)}
        poutine.condition(program.model, data=values)(*program.args, **program.kwargs)

    context = EvaluationContext.of(run, (program.model, guide), double, params)
    draws = partial(_guide_draws, program, context)
    return PyroPosterior(program, context, draws, context.device, poutine.unwrap(guide))


def _guide_draws(program: Program, context: EvaluationContext, count: int) -> Draws:
    """Return draws of the latent sites, with the guide's log density if there is one."""
    with context():
        reason = _without_density(program)
        density = (lambda _: torch.zeros((), device="cpu")) if reason else log_density
        draw = partial(_draw, program, density)
        values, densities = map_over_draws(draw, {}, checked_count(count))
    arrays = {name: value[None] for name, value in values.items()}
    source = type(poutine.unwrap(program.guide)).__name__
    return Draws(source, arrays, {}, None if reason else densities[None], reason)


def _draw(
    program: Program, density: Callable[[Any], torch.Tensor], _: Any
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return one draw of the latent sites, and its log density."""
    sites = guide_nodes(program)
    values = {
        name: site["value"]
        for name, site in sites.items()
        if is_latent(site) and not (site["infer"] or {}).get("is_auxiliary")
    }
    return values, density(site for site in sites.values() if is_sample(site))


def _without_density(program: Program) -> str:
    """Return why a guide has no density; empty if it has one."""
    try:
        check_density(program, reparameterised=False)
    except UnsupportedMoments as error:
        return str(error)
    return ""


def guide_nodes(program: Program) -> dict[str, Any]:
    """Return the sites of a run of the guide."""
    _, guide, args, named, *_ = program
    unwrapped: Any = poutine.unwrap(guide)
    if isinstance(unwrapped, GuideMessenger):  # it runs the model itself
        guide(*args, **named)
        return unwrapped.get_traces()[1].nodes
    return prune_subsample_sites(poutine.trace(guide).get_trace(*args, **named)).nodes


def _chains_source(chains: MCMC, program: Program, double: bool) -> PyroPosterior:
    if chains._samples is None:
        raise missing_chains_error()
    samples = chains.get_samples()
    double = double or _is_double(samples)
    samples = to_float64(samples) if double else samples
    program = _in_precision(program, double)
    first = {name: value[0] for name, value in samples.items()}
    context = _context_of_draw(program, first, double)
    device = next(iter(samples.values())).device
    return PyroPosterior(program, context, lambda _: _chain_draws(chains, double), device)


def _context_of_draw(
    program: Program, draw: dict[str, torch.Tensor], double: bool
) -> EvaluationContext:
    """Return the context of a model that runs with one draw of its latent sites."""

    def run() -> None:
        # Improper priors have no draws.
        with without_subsampling():
            poutine.condition(program.model, data=draw)(*program.args, **program.kwargs)

    return EvaluationContext.of(run, (program.model,), double)


def _chain_draws(chains: MCMC, double: bool) -> Draws:
    samples = chains.get_samples(group_by_chain=True)
    samples = to_float64(samples) if double else samples
    values = {name: to_numpy(value) for name, value in samples.items()}
    return Draws(type(chains.kernel).__name__, values, _diverging(chains, values))


def _diverging(chains: MCMC, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return which draws diverged, by chain."""
    # MCMC.diagnostics() has this, too, but needs at least four draws of each chain.
    shape = next(iter(values.values())).shape[:2]
    extra_fields: Any = chains._diagnostics
    if not all("divergences" in extra_fields[chain] for chain in range(shape[0])):
        return {}
    diverging = np.zeros(shape, bool)
    for chain, row in enumerate(diverging):
        row[extra_fields[chain]["divergences"]] = True
    return {"diverging": diverging}


def _is_double(tensors: Mapping[str, torch.Tensor]) -> bool:
    return any(tensor.dtype is torch.float64 for tensor in tensors.values())
