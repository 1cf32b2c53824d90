"""Base class of the objectives: their options, and evaluations over particles."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
from numpyro import handlers
from numpyro.infer.elbo import ELBO

from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import RuleBook, check_draws
from moment_inference.objectives import choices, sites_to_draw
from numpyro_moments.evaluation.failure_causes import diagnose_errors
from numpyro_moments.likelihoods.structure import random_leaves
from numpyro_moments.sites.drawn_traces import Drawing, drawn_traces
from numpyro_moments.sites.held_terms import HeldTerms
from numpyro_moments.sites.traces import Traces, bind, is_latent, moment_traces


class Objective(choices.Expectations, ELBO):
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
        held_draws: int = 0,
        **options: Any,
    ) -> None:
        check_draws(sample_sites, num_particles)
        choices.check_propagation(propagation, sample_sites, num_particles)
        choices.check_trainable(categorical)
        choices.check_held(held_draws, propagation, sample_sites)
        super().__init__(num_particles=num_particles, **options)
        self.propagation_kind, self.sample_sites = propagation, frozenset(sample_sites)
        self.held_draws = held_draws
        self.propagation = propagation_of(
            covariance, rules, categorical, memory_limit, categorical_draws
        )
        choices.check_terms(self.propagation.rulebook, propagation == "analytic")

    def sites_to_draw(self, key: Any, program: Program) -> frozenset[str]:
        """Return the sites given which the rest has a closed form, see :mod:`.last_map`."""

        def look() -> Any:
            sites = moment_traces(*program, key, self.propagation).model.values()
            latent = [site["name"] for site in sites if is_latent(site)]
            found.append(([*map(random_leaves, sites)], latent))
            return ()

        found: list[tuple] = []
        bind(program.guide, program.model)
        jax.eval_shape(look)
        leaves, latent = found[0]
        return sites_to_draw(chain.from_iterable(leaves), latent)

    def particles(
        self, key: Any, program: Program, consume: Callable[[Traces], Any], data: Any = None
    ) -> tuple[Any, dict[str, Any] | None]:
        """Return what ``consume`` makes of the traces of each particle.

        Args:
            key: for what is drawn.
            program: model and guide.
            consume: from the traces of model and guide to a pytree of arrays.
            data: finds the plates of the data; see
                :class:`numpyro_moments.sites.drawn_traces.Drawing`.

        Returns:
            What ``consume`` returns, on a leading axis of particles; the new values of
            the mutable sites, from the last particle.
        """
        return vectorised(self, key, program, partial(self._particle, consume=consume, data=data))

    def _particle(
        self, program: Program, key: Any, *, consume: Callable[[Traces], Any], data: Any
    ) -> tuple[Any, dict[str, Any]]:
        trace_key, draw_key = jax.random.split(key)

        def consumed(traces: Traces) -> tuple[Any, dict[str, Any]]:
            with handlers.seed(rng_seed=draw_key):  # draws logits if categorical="sample"
                return consume(traces), traces.mutable

        with diagnose_errors(program.model, program.args, program.kwargs):
            if self.propagation_kind != "analytic":
                drawing = Drawing(self.propagation_kind == "mean", data)
                return drawn_traces(*program, trace_key, drawing, consumed)
            options = self.propagation, self.sample_sites
            holds = self.held_draws > 0
            traces = moment_traces(*program, trace_key, *options, holds=holds)
            if holds:
                held = HeldTerms(self, program, trace_key)
                for site in traces.model.values():
                    site["held"] = held
        return consumed(traces)


class Program(NamedTuple):
    """A model and a guide with their arguments."""

    model: Callable
    guide: Callable
    args: tuple
    kwargs: dict[str, Any]
    parameters: dict[str, Any]  # values of the param and mutable sites

    @property
    def of_model(self) -> tuple[Callable, tuple, dict[str, Any]]:
        """Return the model and its arguments."""
        return self.model, self.args, self.kwargs

    def loss(self, objective: Any, key: Any) -> Any:
        """Return a loss at the parameters."""
        model, guide, args, kwargs, parameters = self
        return objective.loss(key, parameters, model, guide, *args, **kwargs)

    def sharing(self, key: Any) -> Program:
        """Return the program with subsamples drawn by ``key``, whatever else is drawn."""
        seeded = partial(handlers.seed, rng_seed=key, hide_types=_OTHERS)
        return self._replace(model=seeded(self.model), guide=seeded(self.guide))


def vectorised(
    objective: ELBO,
    key: Any,
    program: Program,
    particle: Callable[[Program, Any], tuple[Any, dict[str, Any]]],
) -> tuple[Any, dict[str, Any] | None]:
    """Return what ``particle`` makes of each particle, all with the same subsamples."""
    # Arrays have a leading axis of particles; mutable sites have the values of the last
    # particle.
    bind(program.guide, program.model)
    if objective.num_particles == 1:
        found, state = particle(program, key)
        return jax.tree.map(lambda part: part[None], found), state or None
    shared, key = jax.random.split(key)
    once = partial(particle, program.sharing(shared))
    keys = jax.random.split(key, objective.num_particles)
    found, states = objective.vectorize_particles_fn(once, keys)
    return found, jax.tree.map(lambda state: state[-1], states) or None


_OTHERS = ["sample", "prng_key", "control_flow"]  # types of messages that draw, but not plates
