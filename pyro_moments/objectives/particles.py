"""Run a model and a guide with draws of the latent sites: K particles at once, by vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace
from pyro.util import check_model_guide_match

from moment_calculus.objectives.data import DataPlates
from pyro_moments._host import tree_flatten, tree_map
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.particles.site import Particle, SharedDrawNeeded
from pyro_moments.sites.drawn_traces import drawn_traces
from pyro_moments.sites.traces import initialise_parameters

FromTraces = Callable[[Trace, Trace], Any]


class Program(NamedTuple):
    """A model and a guide with their arguments."""

    model: Any
    guide: Any
    args: tuple
    kwargs: dict[str, Any]
    # Finds the plates of the data in the model's trace, along which rows may have noise
    # of their own. If None, these may be all axes of a site's log-density, as in a sum of
    # expectations.
    data: Callable[[Trace], DataPlates] | None = None

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
        guide, (args, kwargs) = program.guide, program[2:4]
        unwrapped = poutine.unwrap(guide)
        if isinstance(unwrapped, poutine.messenger.Messenger):  # it runs the model itself
            initialise_parameters(unwrapped, args, kwargs)
            return
        with torch.no_grad(), poutine.block():
            guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
            replayed = poutine.replay(program.model, trace=guide_trace)
            model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
            if is_validation_enabled():
                check_model_guide_match(model_trace, guide_trace)
                model_trace.compute_log_prob()


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
        """Return what ``consume`` makes of the traces of each particle, on a leading axis."""
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
                seed = int(torch.randint(2**31, ())) if self.is_mean else None
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
