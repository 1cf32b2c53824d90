"""Draw from posteriors: guides, linear responses, finished chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC

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
from numpyro_moments.draws.sites import Whole, is_latent_draw, log_density
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.fitting.storing import sampled_sites
from numpyro_moments.objectives.alpha import check_density
from numpyro_moments.objectives.base import Program
from numpyro_moments.response.linear_response import LinearResponse
from numpyro_moments.response.problem import NumPyroProblem
from numpyro_moments.sites.traces import bind

STATISTICS = {  # ArviZ's names of statistics by NumPyro's
    "diverging": "diverging",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "energy": "energy",
}


@dataclass(frozen=True)
class GuidePosterior:
    """The posterior of a trained guide."""

    program: Program

    @property
    def params(self) -> Mapping[str, Any]:
        """Return the trained parameters of guide and model."""
        return self.program.parameters

    @property
    def precision(self) -> Precision:
        """Return the precision of the parameters."""
        return Precision.of(self.params)

    def draws(self, count: int, key: Any) -> Draws:
        """Return draws of the latent sites, with the guide's log density if there is one."""
        with self.precision():
            keys = jax.random.split(key, checked_count(count))
            reason = self._without_density(key)
            draw = partial(self._draw, log_density=_no_density if reason else log_density)
            values, densities = jax.jit(lambda keys: jax.lax.map(draw, keys))(keys)
        origin = NoDensity(reason) if reason else FromApproximation(_summed(densities)[None])
        arrays = {name: np.asarray(value)[None] for name, value in values.items()}
        return Draws(type(self.program.guide).__name__, arrays, origin)

    def _draw(
        self, key: Any, log_density: Callable[[dict], jax.Array]
    ) -> tuple[dict[str, Any], jax.Array]:
        trace = self._trace(key)
        values = {name: site["value"] for name, site in trace.items() if is_latent_draw(site)}
        return values, log_density(trace)

    def _trace(self, key: Any) -> dict:
        _, guide, args, named, params = self.program
        seeded = handlers.substitute(handlers.seed(guide, key), data=params)
        return handlers.trace(Whole(seeded)).get_trace(*args, **named)

    def _without_density(self, key: Any) -> str:
        """Return why there is no density; empty if there is one."""
        try:
            check_density(self.program, self._trace(key), key)
        except UnsupportedMoments as error:
            return str(error)
        return ""


def _no_density(_: dict) -> jax.Array:
    return jnp.zeros(1)


def _summed(parts: jax.Array) -> np.ndarray:
    return np.asarray(parts).sum(-1, dtype=np.float64)


@dataclass(frozen=True)
class ResponsePosterior:
    """The posterior of a linear response."""

    response: LinearResponse

    @property
    def params(self) -> Mapping[str, Any]:
        """Return the parameters of the linear response."""
        return self._problem.params

    @property
    def precision(self) -> Precision:
        """Return the precision of the parameters."""
        return self._problem.precision

    @property
    def _problem(self) -> NumPyroProblem:
        problem = self.response.problem
        assert isinstance(problem, NumPyroProblem)
        return problem

    def draws(self, count: int, key: Any) -> Draws:
        """Return draws of the latent sites."""
        seed = np.asarray(jax.random.bits(key, [4]))
        generator = np.random.default_rng(seed)
        values, origin = draw_response(self.response, generator, checked_count(count))
        arrays = {name: np.asarray(value)[None] for name, value in values.items()}
        return Draws("LinearResponse", arrays, origin)


@dataclass(frozen=True)
class ChainPosterior:
    """The posterior of finished chains of NumPyro."""

    chains: MCMC
    program: Program

    @property
    def params(self) -> Mapping[str, Any]:
        """Return the given parameters of the model."""
        return self.program.parameters

    @property
    def precision(self) -> Precision:
        """Return the precision of the draws."""
        return Precision.of(self.chains.get_samples())

    def draws(self, count: int, key: Any) -> Draws:
        """Return all draws of the chains; ``count`` and ``key`` are not used."""
        model, _, args, named, params = self.program
        sites = sampled_sites(handlers.substitute(model, data=params), args, dict(named))
        samples = self.chains.get_samples(group_by_chain=True)
        values = {name: np.asarray(value) for name, value in samples.items() if name in sites}
        extra_fields = self.chains.get_extra_fields(group_by_chain=True)
        statistics = {
            new: np.asarray(extra_fields[old])
            for old, new in STATISTICS.items()
            if old in extra_fields
        }
        kernel = type(self.chains.sampler).__name__
        return Draws(kernel, values, FromPosterior(), statistics)


def posterior_of(
    posterior: Any, model: Callable, args: tuple, named: Mapping[str, Any], params: Any
) -> GuidePosterior | ResponsePosterior | ChainPosterior:
    """Return the posterior of a guide, a result of ``fit``, a linear response or chains."""
    if isinstance(posterior, Fit):
        posterior, params = posterior.guide, posterior.params
    if isinstance(posterior, LinearResponse):
        return ResponsePosterior(posterior)
    if isinstance(posterior, MCMC):
        if posterior.last_state is None:
            raise chains_not_run()
        return ChainPosterior(posterior, Program(model, model, args, dict(named), params or {}))
    if not callable(posterior):
        raise no_posterior(posterior, "NumPyro")
    if params is None:
        raise ValueError(
            "a guide takes its trained parameters: params=result.params, or pass what fit returned"
        )
    bind(posterior, model, params)
    return GuidePosterior(Program(model, posterior, args, dict(named), params))
