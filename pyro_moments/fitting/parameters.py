"""Collect, copy and convert the parameters that an evaluation uses in Pyro."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from torch.distributions import transform_to

from moment_calculus import warn_user
from moment_inference import check_parameters
from moment_inference.optimisation import Fit
from pyro_moments._host import tree_map
from pyro_moments.sites.messenger import modules_of


def unconstrained_parameters(tracer: Any) -> dict[str, torch.Tensor]:
    """Return unconstrained parameters by name, from a ``trace(param_only=True)``."""
    values = {name: site["value"] for name, site in tracer.trace.nodes.items()}
    return {
        name: value.unconstrained() if hasattr(value, "unconstrained") else value
        for name, value in values.items()
    }


@dataclass(frozen=True)
class Parameters:
    """References to Pyro's unconstrained parameters, with their constraints."""

    leaves: dict[str, torch.Tensor]
    constraints: dict[str, Any]  # by name; parameters without one are real

    @classmethod
    def from_run(cls, evaluate: Callable[[], Any]) -> Parameters:
        """Return the parameters that an evaluation uses."""
        with poutine.trace(param_only=True) as tracer:
            evaluate()
        return cls.from_trace(tracer)

    @classmethod
    def from_trace(cls, tracer: Any) -> Parameters:
        """Return the parameters of a ``poutine.trace(param_only=True)``."""
        leaves = unconstrained_parameters(tracer)  # before get_state, which drops what this needs
        stored = pyro.get_param_store().get_state()["constraints"]
        module_constraints = {  # of modules whose parameters Pyro does not store
            name: site["kwargs"]["constraint"]
            for name, site in tracer.trace.nodes.items()
            if "constraint" in site["kwargs"]
        }
        return cls(leaves, {**module_constraints, **stored})

    def joined(self, others: Parameters) -> Parameters:
        """Return these parameters and others."""
        constraints = {**self.constraints, **others.constraints}
        return Parameters({**self.leaves, **others.leaves}, constraints)

    def values(self) -> dict[str, torch.Tensor]:
        """Return the constrained values, differentiable."""
        return {
            name: transform_to(self.constraints[name])(leaf) if name in self.constraints else leaf
            for name, leaf in self.leaves.items()
        }

    def constrained_copies(self) -> dict[str, torch.Tensor]:
        """Return copies of the constrained values."""
        return {name: value.detach().clone() for name, value in self.values().items()}

    def are_valid(self) -> bool:
        """Return whether all values are finite and satisfy their constraints."""
        return all(
            bool(value.isfinite().all())
            and (name not in self.constraints or bool(self.constraints[name].check(value).all()))
            for name, value in self.values().items()
        )

    def unconstrained_copies(self) -> dict[str, torch.Tensor]:
        """Return copies of the unconstrained parameters."""
        return {name: leaf.detach().clone() for name, leaf in self.leaves.items()}

    @torch.no_grad()
    def load(self, copies: dict[str, Any]) -> None:
        """Set the parameters to what :meth:`unconstrained_copies` returns, as tensors or arrays."""
        for name, leaf in self.leaves.items():
            leaf.copy_(torch.as_tensor(copies[name], device=leaf.device))

    def load_vector_and_copy(self, vector: np.ndarray) -> dict[str, torch.Tensor]:
        """Set the parameters to a vector, and return unconstrained copies of them."""
        self.set_vector(vector)
        return self.unconstrained_copies()

    @torch.no_grad()
    def replace_data(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take values and dtype from arrays of unconstrained parameters by name."""
        for name, leaf in self.leaves.items():
            leaf.data = torch.from_numpy(arrays[name].copy()).to(leaf.device)

    def vector(self) -> np.ndarray:
        """Return all parameters as one vector."""
        # concatenate needs at least one array
        return np.concatenate([np.zeros(0), *map(as_array, self.leaves.values())])

    @torch.no_grad()
    def set_vector(self, vector: np.ndarray) -> None:
        """Set the parameters to a vector that :meth:`vector` returns."""
        start = 0
        for leaf in self.leaves.values():
            part = vector[start : start + leaf.numel()].reshape(tuple(leaf.shape))
            new_value = torch.as_tensor(part, dtype=leaf.dtype, device=leaf.device)
            if not torch.equal(new_value, leaf):  # a copy invalidates autograd's graphs
                leaf.copy_(new_value)
            start += leaf.numel()


def unconstrained_values(
    parameters: Parameters, params: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    """Return unconstrained values by name, from ``params`` or the current parameters."""
    current = parameters.unconstrained_copies()
    if params is None:
        return current
    check_parameters(params, parameters.values())
    with torch.no_grad():
        values = {name: _to_unconstrained(parameters, name, params[name]) for name in current}
    return {name: value.to(current[name], copy=True) for name, value in values.items()}


def _to_unconstrained(parameters: Parameters, name: str, value: Any) -> torch.Tensor:
    leaf = parameters.leaves[name]
    value = torch.as_tensor(value, dtype=leaf.dtype, device=leaf.device).detach()
    constraint = parameters.constraints.get(name)
    return value if constraint is None else transform_to(constraint).inv(value)


class ParameterSnapshot:
    """Copies of the parameters of model and guide, and a context that puts them in place.

    Nothing is changed in place: what is computed in the context stays valid outside.
    """

    def __init__(self, parameters: Parameters, programs: tuple[Callable, ...]) -> None:
        self.leaves = list(parameters.leaves.values())  # which others may train further
        copies = {
            id(leaf): torch.nn.Parameter(leaf.detach().clone())
            for leaf in parameters.leaves.values()
        }
        stored = {name: copies[id(leaf)] for name, leaf in parameters.leaves.items()}
        self._store = {"params": stored, "constraints": parameters.constraints}
        self._modules = [
            (module, {key: copies.get(id(part), part) for key, part in module._parameters.items()})
            for program in programs
            for module in modules_of(program)
        ]
        self._use_float64 = any(copy.dtype is torch.float64 for copy in copies.values())

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context."""
        state: Any = {kind: dict(part) for kind, part in self._store.items()}
        with (
            pyro.get_param_store().scope(state),
            module_parameters(self._modules),
            double_precision(self._use_float64),
        ):
            yield

    def unconstrained_copies(self) -> dict[str, torch.Tensor]:
        """Return copies of the unconstrained parameters."""
        return {name: leaf.detach().clone() for name, leaf in self._store["params"].items()}

    def cast(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Return arguments in the precision of the parameters."""
        return (to_float64(args), to_float64(kwargs)) if self._use_float64 else (args, kwargs)


@contextlib.contextmanager
def module_parameters(modules: list[tuple[Any, dict]]) -> Iterator[None]:
    """Install recorded parameters in modules, which Pyro replaces; undo it on exit."""
    before = [dict(module._parameters) for module, _ in modules]
    try:
        for module, parameters in modules:
            module._parameters.update(parameters)
        yield
    finally:
        for (module, _), parameters in zip(modules, before, strict=True):
            module._parameters.update(parameters)


@contextlib.contextmanager
def new_parameters(guide: Any) -> Iterator[None]:
    """Let a training make all its parameters anew, unless its guide has some already.

    Afterwards Pyro's store has them in place of those of the same names.
    """
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is not None:
        yield
        return
    store = pyro.get_param_store()
    with store.scope():
        yield
        trained = store.get_state()
    store.set_state(trained)


@contextlib.contextmanager
def frozen_parameters(model: Any) -> Iterator[None]:
    """Leave a module's parameters without ``requires_grad`` as they are, and warn of that.

    Pyro's store would switch their gradients on: in this context they are buffers.
    """
    modules = dict(model.named_modules()) if isinstance(model, torch.nn.Module) else {}
    frozen = [
        (prefix, module, name, parameter)
        for prefix, module in modules.items()
        for name, parameter in module._parameters.items()
        if parameter is not None and not parameter.requires_grad
    ]
    if frozen:
        names = ", ".join(f"{prefix}.{name}".lstrip(".") for prefix, _, name, _ in frozen)
        warn_user(f"fit does not train {names}, whose requires_grad is False", UserWarning)
    for _, module, name, parameter in frozen:
        del module._parameters[name]
        module._buffers[name] = parameter.detach()
    try:
        yield
    finally:
        for _, module, name, parameter in frozen:
            del module._buffers[name]
            module._parameters[name] = parameter


# Earlier results of a guide that can start anew.
_fits: weakref.WeakKeyDictionary[Any, list[weakref.ref[Fit]]] = weakref.WeakKeyDictionary()


def remember_fit(fit: Fit) -> None:
    """Let the next ``fit`` of the same guide start anew."""
    if hasattr(fit.guide, "restart"):
        _fits.setdefault(fit.guide, []).append(weakref.ref(fit))


def restart_if_fitted(guide: Any) -> None:
    """Let a guide of an earlier fit start anew; the fit keeps a guide as it was."""
    if not hasattr(guide, "restart") or guide not in _fits:
        return
    present = guide.at_present()
    for reference in _fits.pop(guide):
        if (fit := reference()) is not None:
            fit.guide = present
    guide.restart()


def present_guide(guide: Any) -> Any:
    """Return a guide, which stays as it is when the given one starts anew."""
    return guide.at_present() if hasattr(guide, "at_present") else guide


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as a flat array of float64."""
    return tensor.detach().reshape(-1).to("cpu", torch.float64).numpy()


@contextlib.contextmanager
def double_precision(wanted: bool = True) -> Iterator[None]:
    """Make new tensors float64 within the context, if wanted."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wanted else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def to_dtype(data: Any, dtype: torch.dtype) -> Any:
    """Return floating-point tensors as ``dtype``, also inside tuples and dictionaries."""

    def convert(part: Any) -> Any:
        floating = isinstance(part, torch.Tensor) and part.is_floating_point()
        return part.to(dtype) if floating else part

    return tree_map(convert, data)


def to_float64(data: Any) -> Any:
    """Return floating-point tensors as float64, also inside tuples and dictionaries."""
    return to_dtype(data, torch.float64)


def in_precision(data: Any, double: bool) -> Any:
    """Return arguments, as float64 if these are wanted."""
    return to_float64(data) if double else data


def parameters_to_float64(evaluate: Callable[[], Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Convert an evaluation's parameters to float64; return them with their old data."""
    changed: list[tuple[torch.Tensor, torch.Tensor]] = []
    # An evaluation may fail on mixed dtypes before it has used all parameters, so it is
    # repeated until none is float32.
    while True:
        failure = None
        with poutine.trace(param_only=True) as tracer:
            try:
                evaluate()
            except Exception as error:
                failure = error
        leaves = unconstrained_parameters(tracer).values()
        single = [leaf for leaf in leaves if leaf.dtype is torch.float32]
        if not single:
            break
        for leaf in single:
            changed.append((leaf, leaf.data))
            leaf.data = leaf.data.double()
    if failure is not None:
        restore_parameters(changed)
        raise failure
    return changed


def restore_parameters(changed: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Restore the old data of parameters that :func:`parameters_to_float64` has changed."""
    for leaf, data in changed:
        leaf.data = data


def has_float64(guide: Any) -> bool:
    """Return whether a guide's parameters are float64 (the store's, for a function)."""
    is_module = isinstance(guide, torch.nn.Module)
    leaves: Any = guide.parameters() if is_module else pyro.get_param_store().values()
    return any(leaf.dtype is torch.float64 for leaf in leaves)
