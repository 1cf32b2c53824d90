"""Contexts that run Pyro programs at fixed parameters and restore all state afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine

from pyro_moments.fitting.parameters import (
    Parameters,
    as_array,
    double_precision,
    module_parameters,
    to_float64,
    unconstrained_values,
)
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.sites.messenger import modules_of
from pyro_moments.sites.subsamples import without_subsampling

SEED_LIMIT = 2**31  # seeds of NumPy and torch are drawn from 0 to this


class FixedParameters:
    """Parameter values, and a context in which Pyro's parameters take them.

    Pyro updates parameters in place: inside the context each holds these values, and its
    original data are put back afterwards. Random states are restored, too.
    """

    def __init__(
        self, parameters: Parameters, values: Mapping[str, torch.Tensor], programs: tuple
    ) -> None:
        self.parameters, self.leaves = parameters, list(parameters.leaves.values())
        self._data = [values[name] for name in parameters.leaves]
        self._store = pyro.get_param_store().get_state()
        modules = [module for program in programs for module in modules_of(program)]
        self._modules = [(module, dict(module._parameters)) for module in modules]
        self._is_active = False

    @property
    def vector(self) -> np.ndarray:
        """Return all parameters as one vector."""
        return np.concatenate([np.zeros(0), *map(as_array, self._data)])

    def as_tensor(self, values: Any) -> torch.Tensor:
        """Return numbers as a tensor with the dtype and device of the parameters."""
        reference = (
            self._data[0] if self._data else torch.empty(0, device=torch.get_default_device())
        )
        return torch.as_tensor(values, dtype=reference.dtype, device=reference.device)

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return self.as_tensor([]).device

    @property
    def has_float64(self) -> bool:
        """Whether any parameter is float64."""
        return any(part.dtype is torch.float64 for part in self._data)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context; nested inside itself it turns gradients on, and no more."""
        if self._is_active:
            with torch.enable_grad():
                yield
            return
        self._is_active = True
        try:
            with (
                random_state_restored(),
                torch.enable_grad(),
                _precision(self.has_float64),
                pyro.get_param_store().scope(_writable_copy(self._store)),
                module_parameters(self._modules),
                _parameter_data(self.leaves, self._data),
            ):
                yield
        finally:
            self._is_active = False


def _writable_copy(state: Any) -> Any:
    """Return a copy of the state of Pyro's store that may be written to."""
    return {name: dict(part) for name, part in state.items()}


@contextlib.contextmanager
def _parameter_data(leaves: list[torch.Tensor], data: list[torch.Tensor]) -> Iterator[None]:
    before = [leaf.data for leaf in leaves]
    try:
        for leaf, part in zip(leaves, data, strict=True):
            leaf.data = part
        yield
    finally:
        for leaf, part in zip(leaves, before, strict=True):
            leaf.data = part


@dataclass(frozen=True)
class EvaluationContext:
    """A context that evaluates programs and leaves their parameters and modules unchanged."""

    fixed_parameters: FixedParameters
    use_float64: bool  # whether to compute in float64
    programs: tuple[Callable, ...]  # whose modules keep their buffers

    @classmethod
    def of(
        cls,
        run: Callable[[], Any],
        programs: tuple[Callable, ...],
        use_float64: bool,
        params: Mapping[str, Any] | None = None,
    ) -> EvaluationContext:
        """Run programs to find their parameters, and return the context at ``params``, if given."""
        with (
            random_state_restored(),
            torch.no_grad(),
            poutine.block(),
            _precision(use_float64),
            _buffers_restored(programs),
            _store_without(params),
        ):
            parameters = Parameters.from_run(run)
            fixed_parameters = FixedParameters(
                parameters, unconstrained_values(parameters, params), programs
            )
        return cls(fixed_parameters, use_float64, programs)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context: no subsampling, no gradients, a fresh random seed."""
        seed = int(torch.randint(SEED_LIMIT, (), device="cpu"))
        with self.sampling(), torch.no_grad():
            pyro.set_rng_seed(seed)
            yield

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Return a context for MCMC: with gradients and without subsampling."""
        with (
            self.fixed_parameters(),
            _precision(self.use_float64),
            _buffers_restored(self.programs),
            poutine.block(),
            without_subsampling(),
        ):
            yield

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return self.fixed_parameters.device

    def cast_arguments(
        self, args: tuple, kwargs: Mapping[str, Any]
    ) -> tuple[tuple, dict[str, Any]]:
        """Return arguments in the precision of the computation."""
        kwargs = dict(kwargs)
        return (to_float64(args), to_float64(kwargs)) if self.use_float64 else (args, kwargs)


def _precision(use_float64: bool) -> Any:
    return double_precision() if use_float64 else contextlib.nullcontext()


def _store_without(params: Mapping[str, Any] | None) -> Any:
    """Return a scope of Pyro's store without ``params``; None: Pyro's store itself."""
    if params is None:
        return contextlib.nullcontext()
    # Another guide of the same class may have parameters of these names in the store.
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
