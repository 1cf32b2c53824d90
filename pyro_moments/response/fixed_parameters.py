"""Parameters that stay at one place, also if Pyro trains its own further."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyro
import torch
from torch.distributions import transform_to

from moment_calculus.response.wording import other_parameters, other_shape
from pyro_moments.fitting.parameters import Parameters, as_array
from pyro_moments.fitting.precision import double_precision
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.sites.latent_vector import modules_of


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
            with contextlib.ExitStack() as stack:
                stack.enter_context(random_state_restored())
                stack.enter_context(torch.enable_grad())
                if self.double:
                    stack.enter_context(double_precision())
                stack.enter_context(pyro.get_param_store().scope(_writable_copy(self._store)))
                stack.enter_context(_modules_with(self._modules))
                stack.enter_context(_data_swapped_for(self.leaves, self._data))
                yield
        finally:
            self._is_entered = False


def unconstrained_copies(
    parameters: Parameters, params: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    """Return unconstrained values by name, of constrained ones, or of the current ones if None."""
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
    """Restore the recorded parameters of modules, which Pyro replaces by those of its store."""
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
