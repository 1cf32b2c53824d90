"""What the objectives have in common: how randomness flows through a model, how often."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax
from numpyro import handlers
from numpyro.infer.elbo import ELBO

from moment_calculus.numerics.rulebook import RuleBook, check_draws
from moment_calculus.objectives.options import check_propagation
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.diagnosis import diagnosed
from numpyro_moments.sites.binding import bind
from numpyro_moments.sites.drawn import Drawing, drawn_traces
from numpyro_moments.sites.traces import Traces, moment_traces


class Objective(ELBO):
    """An objective that is made of what every site contributes.

    Args:
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        covariance: of analytic propagation, as the following ones.
        rules: rule book.
        categorical: how expected log-likelihoods of classes are approximated.
        categorical_draws: number of draws of logits.
        sample_sites: names of the sites that are drawn.
        num_particles: number of draws.
        memory_limit: bytes that one covariance may take.
        **options: passed to :class:`numpyro.infer.elbo.ELBO`.
    """

    alpha = 0.0  # of the energy that it is

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
        **options: Any,
    ) -> None:
        check_draws(sample_sites, num_particles)
        check_propagation(propagation, sample_sites, num_particles)
        super().__init__(num_particles=num_particles, **options)
        self.flow, self.sample_sites = propagation, frozenset(sample_sites)
        self.propagation = propagation_of(
            covariance, rules, categorical, memory_limit, categorical_draws
        )

    def by_draws(self, count: int) -> Any:
        """The same objective, whose latent sites are drawn.

        Args:
            count: number of particles.
        """
        drawn = copy.copy(self)
        drawn.flow, drawn.num_particles = "sampled", count
        return drawn

    def particle_terms(self, key: Any, program: Program) -> tuple[tuple[Any, ...], Any]:
        """What ``energy`` takes: of every particle the data, the latent sites, and a scale.

        Args:
            key: for what is drawn.
            program: model and guide.

        Returns:
            These arrays; the new values of the mutable sites.
        """
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Whether anything is drawn besides subsamples."""
        by_logits = self.propagation.categorical == "sample"
        return self.flow == "sampled" or bool(self.sample_sites) or by_logits

    @property
    def in_closed_form(self) -> bool:
        """Whether expectations are computed from moments alone."""
        return self.flow == "analytic" and not self.draws

    def particles(
        self, key: Any, program: Program, consume: Callable[[Traces], Any], data: Any = None
    ) -> tuple[Any, dict[str, Any] | None]:
        """What is made of the traces of each particle.

        Args:
            key: for what is drawn.
            program: model and guide.
            consume: makes arrays of traces.
            data: as of :class:`numpyro_moments.sites.drawn.Drawing`.

        Returns:
            What ``consume`` returns, with an axis of the particles before the others; the new
            values of the mutable sites, those of the last particle.
        """
        return vectorised(self, key, program, partial(self._particle, consume=consume, data=data))

    def _particle(
        self, program: Program, key: Any, *, consume: Callable[[Traces], Any], data: Any
    ) -> tuple[Any, dict[str, Any]]:
        trace_key, draw_key = jax.random.split(key)

        def consumed(traces: Traces) -> tuple[Any, dict[str, Any]]:
            with handlers.seed(rng_seed=draw_key):  # logits are drawn where categorical="sample"
                return consume(traces), traces.mutable

        with diagnosed(program.model, program.args, program.kwargs):
            if self.flow != "analytic":
                drawing = Drawing(self.flow == "mean", data)
                return drawn_traces(*program, trace_key, drawing, consumed)
            options = self.propagation, self.sample_sites
            traces = moment_traces(*program, trace_key, *options)
        return consumed(traces)


class Program(NamedTuple):
    """A model and a guide, with what they are called with.

    Args:
        model: NumPyro model.
        guide: NumPyro guide.
        args: arguments of both.
        kwargs: keyword arguments of both.
        parameters: values of the ``param`` and ``mutable`` sites by name.
    """

    model: Callable
    guide: Callable
    args: tuple
    kwargs: dict[str, Any]
    parameters: dict[str, Any]

    def sharing(self, key: Any) -> Program:
        """The same with subsamples drawn by a key, whatever else is drawn.

        Args:
            key: random key.
        """
        seeded = partial(handlers.seed, rng_seed=key, hide_types=_OTHERS)
        return self._replace(model=seeded(self.model), guide=seeded(self.guide))


def vectorised(
    objective: ELBO,
    key: Any,
    program: Program,
    particle: Callable[[Program, Any], tuple[Any, dict[str, Any]]],
) -> tuple[Any, dict[str, Any] | None]:
    """What is made of each particle, which all have the same subsamples.

    Args:
        objective: says how many particles there are, and how they are vectorised.
        key: for what is drawn.
        program: model and guide; a guide without a model is bound to that one.
        particle: makes arrays of a program and a key, and the new values of the mutable sites.

    Returns:
        The arrays, with an axis of the particles before the others; the new values of the mutable
        sites, those of the last particle.
    """
    bind(program.guide, program.model)
    if objective.num_particles == 1:
        found, state = particle(program, key)
        return jax.tree.map(lambda part: part[None], found), state or None
    shared, key = jax.random.split(key)
    once = partial(particle, program.sharing(shared))
    keys = jax.random.split(key, objective.num_particles)
    found, states = objective.vectorize_particles_fn(once, keys)
    return found, jax.tree.map(lambda state: state[-1], states) or None


_OTHERS = ["sample", "prng_key", "control_flow"]  # all that are drawn but subsamples
