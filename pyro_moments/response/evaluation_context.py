"""Contexts in which programs have fixed parameters, and restore their state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from torch.distributions import transform_to

from moment_calculus.response.errors import other_parameters, other_shape
from pyro_moments.draws.model import without_subsampling
from pyro_moments.fitting.parameters import Parameters, as_array, double_precision, to_float64
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.sites.messenger import modules_of


class FixedParameters:
    """Parameters at one place, and a context in which Pyro has them there.

    Pyro trains parameters in place, so each gets the data of this place in the context
    and its own again afterwards. Random states are restored, too.
    """

    def __init__(
        self, parameters: Parameters, copies: Mapping[str, torch.Tensor], programs: tuple
    ) -> None:
        self.leaves = list(parameters.leaves.values())
        self._data = [copies[name] for name in parameters.leaves]
        self._store = pyro.get_param_store().get_state()
        modules = [module for program in programs for module in modules_of(program)]
        self._modules = [(module, dict(module._parameters)) for module in modules]
        self._is_entered = False

    @property
    def vector(self) -> np.ndarray:
        """Return all parameters as one vector."""
        return np.concatenate([np.zeros(0), *map(as_array, self._data)])

    def array(self, values: Any) -> torch.Tensor:
        """Return numbers as a tensor with the dtype and device of the parameters."""
        like = self._data[0]
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)

    @property
    def double(self) -> bool:
        """Return whether the parameters are float64."""
        return any(part.dtype is torch.float64 for part in self._data)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context; a context inside another does nothing."""
        if self._is_entered:
            yield
            return
        self._is_entered = True
        try:
            with (
                random_state_restored(),
                torch.enable_grad(),
                _precision(self.double),
                pyro.get_param_store().scope(_writable_copy(self._store)),
                _modules_with(self._modules),
                _data_swapped_for(self.leaves, self._data),
            ):
                yield
        finally:
            self._is_entered = False


def unconstrained_copies(
    parameters: Parameters, params: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    """Return unconstrained values by name, of ``params`` or the current ones."""
    now = parameters.copies()
    if params is None:
        return now
    if params.keys() != now.keys():
        raise other_parameters(params, now)
    with torch.no_grad():
        copies = {name: _inverse(parameters, name, params[name]) for name in now}
    for name, part in copies.items():
        if part.shape != now[name].shape:
            raise other_shape(name, params[name].shape, parameters.values()[name].shape)
    return {name: part.to(now[name], copy=True) for name, part in copies.items()}


def _inverse(parameters: Parameters, name: str, value: Any) -> torch.Tensor:
    value = torch.as_tensor(value).detach().to(parameters.leaves[name])
    constraint = parameters.constraints.get(name)
    return value if constraint is None else transform_to(constraint).inv(value)


def _writable_copy(state: Any) -> Any:
    """Return a copy of the state of Pyro's store that may be written to."""
    return {name: dict(part) for name, part in state.items()}


@contextlib.contextmanager
def _modules_with(modules: list[tuple[Any, dict]]) -> Iterator[None]:
    """Restore the recorded parameters of modules, which Pyro replaces."""
    before = [dict(module._parameters) for module, _ in modules]
    try:
        for module, parameters in modules:
            module._parameters.update(parameters)
        yield
    finally:
        for (module, _), parameters in zip(modules, before, strict=True):
            module._parameters.update(parameters)


@contextlib.contextmanager
def _data_swapped_for(leaves: list[torch.Tensor], data: list[torch.Tensor]) -> Iterator[None]:
    before = [leaf.data for leaf in leaves]
    try:
        for leaf, part in zip(leaves, data, strict=True):
            leaf.data = part
        yield
    finally:
        for leaf, part in zip(leaves, before, strict=True):
            leaf.data = part


SEEDS = 2**31


@dataclass(frozen=True)
class EvaluationContext:
    """A context that leaves parameters and modules of programs as they are."""

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
        with (
            random_state_restored(),
            torch.no_grad(),
            poutine.block(),
            _precision(double),
            _buffers_restored(programs),
            contextlib.nullcontext() if params is None else _store_without(params),
        ):
            parameters = Parameters.from_run(run)
            fixed_parameters = FixedParameters(
                parameters, unconstrained_copies(parameters, params), programs
            )
        return cls(fixed_parameters, double, programs)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context, with whole plates and new random numbers."""
        seed = int(torch.randint(SEEDS, ()))
        with self.sampling(), torch.no_grad():
            pyro.set_rng_seed(seed)
            yield

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Return a context in which chains run, with gradients, and plates are whole."""
        with (
            self.fixed_parameters(),
            _precision(self.double),
            _buffers_restored(self.programs),
            poutine.block(),
            without_subsampling(),
        ):
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
