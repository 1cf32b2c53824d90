"""Draws of a model's latent sites: K particles at once, by vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace
from pyro.util import check_model_guide_match
from torch.utils import _pytree as pytree

from moment_calculus.objectives.data import DataPlates
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.particles.noise import AtOnce
from pyro_moments.particles.particle import Particle
from pyro_moments.particles.site import Together
from pyro_moments.sites.drawn import drawn_traces
from pyro_moments.sites.traces import make_parameters

Consume = Callable[[Trace, Trace], Any]


class Program(NamedTuple):
    """A model and a guide, with what they are called with.

    Args:
        model: Pyro model.
        guide: Pyro guide.
        args: arguments of both.
        kwargs: keyword arguments of both.
        data: finds the plates of the data in the model's trace, along which rows may have noise of
            their own; None where it may be any axis of the log-density of a site, as in a sum of
            expectations.
    """

    model: Any
    guide: Any
    args: tuple
    kwargs: dict[str, Any]
    data: Callable[[Trace], DataPlates] | None = None

    def run(self, particle: Particle, seed: int | None = None) -> tuple[Trace, Trace]:
        """The traces of one particle."""
        return drawn_traces(particle, *self[:4], seed=seed, data=self.data)


class Validated:
    """Runs programs on samples, with Pyro's validation, once for each structure.

    A structure is model, guide and the shapes of the arguments. Copies and pickles begin anew:
    programs have other ids then.
    """

    def __init__(self) -> None:
        self.met: dict[Any, Any] = {}  # with what keeps their ids alive

    def __reduce__(self) -> tuple:
        return type(self), ()

    def __call__(self, program: Program) -> tuple:
        """The structure of a program, which is validated.

        Args:
            program: model and guide.
        """
        structure = _structure(program)
        if structure not in self.met:
            self.validate(program)
            self.met[structure] = program[:2]
        return structure

    def validate(self, program: Program) -> None:
        """Run a program on samples, as Pyro does, with its checks.

        Args:
            program: model and guide.
        """
        guide, (args, kwargs) = program.guide, program[2:4]
        unwrapped = poutine.unwrap(guide)
        if isinstance(unwrapped, poutine.messenger.Messenger):  # it runs the model itself
            make_parameters(unwrapped, args, kwargs)
            return
        with torch.no_grad(), poutine.block():
            guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
            replayed = poutine.replay(program.model, trace=guide_trace)
            model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
            if is_validation_enabled():
                check_model_guide_match(model_trace, guide_trace)
                model_trace.compute_log_prob()


class Vectorised:
    """Runs programs with draws of their latent sites.

    At the first call for each structure a program is validated. Which sites have to be drawn once
    for all rows, and whether particles fill arrays, is found in every run, and remembered, so that
    no program is run twice each time.

    Args:
        is_mean: whether the means of the sites stand for draws.
    """

    def __init__(self, is_mean: bool) -> None:
        self.is_mean, self.validated = is_mean, Validated()
        self.together: dict[Any, frozenset[str]] = {}
        self.at_once: dict[Any, AtOnce] = {}

    def __getstate__(self) -> dict:
        """Copy and pickle without what was found out of programs, which have other ids then."""
        return self.__dict__ | {"together": {}, "at_once": {}}

    def __call__(self, program: Program, consume: Consume, count: int) -> Any:
        """What is made of the traces of each particle, on a leading axis.

        Args:
            program: model and guide.
            consume: makes a pytree of tensors of the model's and the guide's trace.
            count: number of particles.
        """
        structure = self.validated(program)
        at_once = self.at_once.setdefault(structure, AtOnce())
        while True:
            together = self.together.setdefault(structure, frozenset())
            try:
                return self._run(program, consume, count, together, at_once)
            except Together as found:
                self.together[structure] = together | found.sites

    def _run(
        self,
        program: Program,
        consume: Consume,
        count: int,
        together: frozenset[str],
        at_once: AtOnce,
    ) -> Any:
        if count == 1:
            with full_precision():
                seed = int(torch.randint(2**31, ())) if self.is_mean else None
                found = consume(*program.run(Particle(together, self.is_mean), seed))
            return pytree.tree_map(lambda part: part[None], found)
        return at_once(lambda seed: consume(*program.run(Particle(together), seed)), count)


def _structure(program: Program) -> tuple:
    """What of a call decides how its program goes, as far as can be told."""
    leaves, tree = pytree.tree_flatten((program.args, program.kwargs))
    kinds = tuple(
        (leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in leaves
    )
    training = (getattr(part, "training", None) for part in (program.model, program.guide))
    return id(program.model), id(program.guide), str(tree), kinds, *training
