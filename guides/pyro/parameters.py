"""Look up the parameters of guides without PyroModule's slow attribute access."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from pyro.poutine.runtime import effectful
from torch.distributions import Distribution, transform_to


@contextmanager
def unvalidated() -> Iterator[None]:
    """Create distributions within this context without validating their parameters."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def parameter(module: Any, name: str) -> torch.Tensor:
    """Return the parameter of a dotted name in a module."""
    return parameters(name, module)[0]


def parameters(name: str, *modules: Any) -> tuple[torch.Tensor, ...]:
    """Return the parameter of one dotted name in each of several parts of one module."""
    *path, last = name.split(".")
    for part in path:  # plain dictionaries, because PyroModule's look-ups are slow
        modules = tuple([module._modules[part] for module in modules])
    if modules[0]._pyro_context.active and pyro.settings.get("module_local_params"):
        return tuple([_local_parameter(module, last) for module in modules])
    return tuple([getattr(module, last) for module in modules])


def _local_parameter(module: Any, name: str) -> torch.Tensor:
    """Return a module-local parameter as PyroModule does, but faster."""
    constraint, event_dim = module._pyro_params[name]
    unconstrained = module._parameters[name + "_unconstrained"]
    value = transform_to(constraint)(unconstrained)
    value.unconstrained = weakref.ref(unconstrained)
    full_name = f"{module._pyro_name}.{name}"
    return _param_message(
        full_name, value, constraint=constraint, event_dim=event_dim, name=full_name
    )


@effectful(type="param")
def _param_message(full_name: str, value: torch.Tensor, **_: Any) -> torch.Tensor:
    """Pass a parameter to Pyro's handlers."""
    return value
