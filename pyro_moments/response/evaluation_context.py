"""Contexts that run programs at fixed parameters and restore all state that they change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine

from pyro_moments.draws.plates import without_subsampling
from pyro_moments.fitting.parameters import Parameters
from pyro_moments.fitting.precision import double_precision, to_float64
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.response.fixed_parameters import FixedParameters, unconstrained_copies
from pyro_moments.sites.latent_vector import modules_of

SEEDS = 2**31


@dataclass(frozen=True)
class EvaluationContext:
    """A context to evaluate programs in, which leaves their parameters and modules as they are."""

    fixed_parameters: FixedParameters
    double: bool  # whether to compute in float64
    programs: tuple[Callable, ...]  # whose modules keep their buffers

    @classmethod
    def of(
        cls,
        run: Callable[[], Any],
        programs: tuple[Callable, ...],
        double: bool,
        params: Mapping[str, Any] | None = None,
    ) -> EvaluationContext:
        """Run programs to find their parameters, and return the context at ``params``, if given."""
        with contextlib.ExitStack() as stack:
            for part in (
                random_state_restored(),
                torch.no_grad(),
                poutine.block(),
                _precision(double),
            ):
                stack.enter_context(part)
            stack.enter_context(_buffers_restored(programs))
            if params is not None:
                stack.enter_context(_store_without(params))
            parameters = Parameters.from_run(run)
            fixed_parameters = FixedParameters(
                parameters, unconstrained_copies(parameters, params), programs
            )
        return cls(fixed_parameters, double, programs)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context, in which plates are whole and each entry has new random numbers."""
        seed = int(torch.randint(SEEDS, ()))
        with contextlib.ExitStack() as stack:
            for part in (
                self.fixed_parameters(),
                _precision(self.double),
                _buffers_restored(self.programs),
            ):
                stack.enter_context(part)
            for part in (torch.no_grad(), poutine.block(), without_subsampling()):
                stack.enter_context(part)
            pyro.set_rng_seed(seed)
            yield

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Return a context in which chains run, with gradients, and plates are whole."""
        with contextlib.ExitStack() as stack:
            for part in (
                self.fixed_parameters(),
                _precision(self.double),
                _buffers_restored(self.programs),
            ):
                stack.enter_context(part)
            for part in (poutine.block(), without_subsampling()):
                stack.enter_context(part)
            yield

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return (
            self.fixed_parameters.leaves[0].device
            if self.fixed_parameters.leaves
            else torch.empty(0).device
        )

    def arguments(self, args: tuple, named: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Return arguments in the precision of the computation."""
        return (to_float64(args), to_float64(dict(named))) if self.double else (args, dict(named))


def _precision(double: bool) -> Any:
    return double_precision() if double else contextlib.nullcontext()


def _store_without(params: Mapping[str, Any]) -> Any:
    """Return a scope of Pyro's store without parameters of some names.

    Another guide of the same class may have parameters of these names in the store.
    """
    state: Any = pyro.get_param_store().get_state()
    parts: Any = {
        kind: {name: value for name, value in part.items() if name not in params}
        for kind, part in state.items()
    }
    return pyro.get_param_store().scope(parts)


@contextlib.contextmanager
def _buffers_restored(programs: tuple[Callable, ...]) -> Iterator[None]:
    """Restore the buffers of modules, such as running averages, after the context."""
    modules = [module for program in programs for module in modules_of(program)]
    buffers = [part for module in modules for part in module.buffers(recurse=False)]
    before = [part.clone() for part in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, value in zip(buffers, before, strict=True):
                part.copy_(value)
