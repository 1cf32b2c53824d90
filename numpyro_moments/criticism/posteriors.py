"""Posteriors of NumPyro: guides, linear responses and finished chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC

from moment_calculus import UnsupportedMoments
from moment_calculus.predictions import checked_count
from moment_inference.criticism import Draws, Posterior, missing_chains_error, posterior_type_error
from moment_inference.optimisation import Fit
from moment_inference.response import Problem
from numpyro_moments.draws.model import NumPyroModel, is_latent_draw, log_density
from numpyro_moments.evaluation.arguments import Precision, apart, in_jax
from numpyro_moments.evaluation.programs import Programs
from numpyro_moments.fitting.storing import sampled_sites
from numpyro_moments.objectives.base import Program
from numpyro_moments.objectives.densities import check_density
from numpyro_moments.prediction.predict import predict_by
from numpyro_moments.response.linear_response import LinearResponse
from numpyro_moments.response.nested import Nested
from numpyro_moments.response.program import TrainedProgram
from numpyro_moments.sites.subsamples import Whole
from numpyro_moments.sites.traces import bind

STATISTICS = {  # ArviZ's names of statistics by NumPyro's
    "diverging": "diverging",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "energy": "energy",
}


class Keys(NamedTuple):
    """Random keys of draws, and of what is made from them."""

    draws: Any
    model: Any
    base: Any  # of predictions and of linear response

    @classmethod
    def of(cls, key: Any) -> Keys:
        """Return the keys of comparisons and diagnoses."""
        return cls(jax.random.fold_in(key, 2), jax.random.fold_in(key, 1), key)

    def of_response(self) -> Keys:
        """Return the keys with others for draws of linear response."""
        return self._replace(draws=jax.random.fold_in(self.base, 3))


@dataclass(frozen=True)
class NumPyroPosterior(Posterior):
    """A guide, a linear response or finished chains."""

    program: Program
    precision: Precision
    keys: Keys
    draw: Callable[[int, Any], Draws]  # of a count and a key
    guide: Any = None

    framework, response_type = "NumPyro", LinearResponse

    def model_context(self) -> Any:
        """Return a context with the precision of the trained parameters."""
        return self.precision()

    def draws(self, count: int) -> Draws:
        """Return draws of the latent sites, the same at each call; of chains all."""
        return self.draw(count, self.keys.draws)

    def generator(self) -> np.random.Generator:
        """Return a generator, the same at each call."""
        seed = jax.random.bits(jax.random.fold_in(self.keys.draws, 0), [4])
        return np.random.default_rng(np.asarray(seed))

    def model(self, example_draw: Any, batch_size: int | None = None) -> NumPyroModel:
        """Return the model with its arguments."""
        how = self.precision, self.keys.model, batch_size
        return NumPyroModel(self.program, example_draw, *how)

    def with_arguments(self, model: Any, args: tuple, named: Mapping[str, Any]) -> NumPyroModel:
        """Return the model with other arguments."""
        with self.precision():
            given = in_jax((args, dict(named)), self.precision.double)
        return replace(model, program=self.program._replace(args=given[0], kwargs=given[1]))

    def problem(self, objective: Any) -> Problem:
        """Return guide and model at the trained parameters."""
        return Problem(TrainedProgram.of(self.program, objective))

    def with_approximation(self, other: Any) -> NumPyroPosterior:
        """Return a linear response, or chains, with the same model and arguments."""
        model, _, args, named, params = self.program
        return posterior_of(other, model, args, named, params, self.keys.of_response())

    def predict(self, test: tuple | None, objective: Any) -> dict[str, Any]:
        """Return the guide's predictions by site, as of an objective."""
        model, guide, args, named, params = self.program
        if test is not None:
            args, named = test, {}
        with Whole():
            return predict_by(objective, model, guide, params, args, named)

    def sample(self, prediction: Any, count: int) -> np.ndarray:
        """Return draws of a prediction, the same at each call."""
        return np.asarray(prediction.sample(count, jax.random.fold_in(self.keys.base, count)))


def posterior_of(
    posterior: Any, model: Callable, args: tuple, named: Mapping[str, Any], params: Any, keys: Keys
) -> NumPyroPosterior:
    """Return the posterior of any result: of ``fit``, ``nested``, a guide, a response, chains."""
    if isinstance(posterior, Fit):
        posterior, params = posterior.guide, posterior.params
    response, nested = isinstance(posterior, LinearResponse), isinstance(posterior, Nested)
    precision = Precision.of(params, float64=nested)
    precision = posterior.problem.program.precision if response else precision
    with precision():
        args, named = in_jax((args, dict(named)), precision.double)
    program = Program(model, posterior, args, dict(named), params or {})
    if response:
        return _response_source(posterior, program, keys)
    if nested:
        draws = lambda count, key: _nested_draws(posterior, count, key)  # noqa: E731
        return NumPyroPosterior(program, precision, keys, draws, posterior)
    if isinstance(posterior, MCMC):
        return _chains_source(posterior, program, keys)
    if not callable(posterior):
        raise posterior_type_error(posterior, "NumPyro")
    if params is None:
        raise ValueError(
            "a guide takes its trained parameters: params=result.params, or pass what fit returned"
        )
    bind(posterior, model, params)
    program = program._replace(parameters=params)
    draws = partial(_guide_draws, program)
    return NumPyroPosterior(program, Precision.of(params), keys, draws, posterior)


def _nested_draws(posterior: Nested, count: int, key: Any) -> Draws:
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, [4])))
    values = posterior.plain_draws(generator, checked_count(count))
    return Draws("Nested", {name: value[None] for name, value in values.items()})


def _response_source(response: LinearResponse, program: Program, keys: Keys) -> NumPyroPosterior:
    trained: Any = response.problem.program

    def draws(count: int, key: Any) -> Draws:
        generator = np.random.default_rng(np.asarray(jax.random.bits(key, [4])))
        return Draws.of_response(response, generator, checked_count(count))

    program = program._replace(parameters=trained.program.parameters)
    return NumPyroPosterior(program, trained.precision, keys, draws)


def _guide_draws(program: Program, count: int, key: Any) -> Draws:
    """Return draws of the latent sites, with the guide's log density if there is one."""
    with Precision.of(program.parameters)():
        keys = jax.random.split(key, checked_count(count))
        reason = _without_density(program, key)
        density = (lambda _: jnp.zeros(1)) if reason else log_density

        own, rest = apart((program.args, dict(program.kwargs), dict(program.parameters)))

        def drawn(keys: Any, data: list | None) -> Any:
            inputs = rest.joined(own if data is None else data)
            given = Program(program.model, program.guide, *inputs)

            def draw(key: Any) -> tuple[dict[str, Any], jax.Array]:
                trace = _guide_trace(given, key)
                latent = {name: site for name, site in trace.items() if is_latent_draw(site)}
                return {name: site["value"] for name, site in latent.items()}, density(trace)

            return jax.lax.map(draw, keys)

        name = "draws", bool(reason), rest.structure
        values, parts = Programs(program.guide, rest.leaves).run_on(own, name, drawn, keys)
    arrays = {name: np.asarray(value)[None] for name, value in values.items()}
    densities = np.asarray(parts).sum(-1, dtype=np.float64)[None]
    source = type(program.guide).__name__
    return Draws(source, arrays, {}, None if reason else densities, reason)


def _guide_trace(program: Program, key: Any) -> dict:
    _, guide, args, named, params = program
    seeded = handlers.substitute(handlers.seed(guide, key), data=params)
    return handlers.trace(Whole(seeded)).get_trace(*args, **named)


def _without_density(program: Program, key: Any) -> str:
    """Return why a guide has no density; empty if it has one."""
    try:
        check_density(program, _guide_trace(program, key), key)
    except UnsupportedMoments as error:
        return str(error)
    return ""


def _chains_source(chains: MCMC, program: Program, keys: Keys) -> NumPyroPosterior:
    if chains.last_state is None:
        raise missing_chains_error()
    draws = lambda count, key: _chain_draws(chains, program)  # noqa: E731
    return NumPyroPosterior(program, Precision.of(chains.get_samples()), keys, draws)


def _chain_draws(chains: MCMC, program: Program) -> Draws:
    model, _, args, named, params = program
    sites = sampled_sites(handlers.substitute(model, data=params), args, dict(named))
    samples = chains.get_samples(group_by_chain=True)
    values = {name: np.asarray(value) for name, value in samples.items() if name in sites}
    extra_fields = chains.get_extra_fields(group_by_chain=True)
    statistics = {
        new: np.asarray(extra_fields[old]) for old, new in STATISTICS.items() if old in extra_fields
    }
    return Draws(type(chains.sampler).__name__, values, statistics)
