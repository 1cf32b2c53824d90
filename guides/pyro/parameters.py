"""Parameters of guides, looked up without the detours of PyroModule."""

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
    """Distributions that are made here do not look at their parameters."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def parameter(module: Any, name: str) -> torch.Tensor:
    """The parameter of a dotted name; plain dictionaries, for PyroModule's look-ups are slow.

    Args:
        module: that holds it, or modules with it.
        name: its path.
    """
    return parameters(name, module)[0]


def parameters(name: str, *modules: Any) -> tuple[torch.Tensor, ...]:
    """The parameters of one name.

    Args:
        name: their path.
        modules: each of which holds one; parts of one module.
    """
    *path, last = name.split(".")
    for part in path:
        modules = tuple([module._modules[part] for module in modules])
    if modules[0]._pyro_context.active and pyro.settings.get("module_local_params"):
        return tuple([_local_parameter(module, last) for module in modules])
    return tuple([getattr(module, last) for module in modules])


def _local_parameter(module: Any, name: str) -> torch.Tensor:
    """What PyroModule does with local parameters, without its detours."""
    constraint, event_dim = module._pyro_params[name]
    unconstrained = module._parameters[name + "_unconstrained"]
    value = transform_to(constraint)(unconstrained)
    value.unconstrained = weakref.ref(unconstrained)
    full_name = f"{module._pyro_name}.{name}"
    return _announced(full_name, value, constraint=constraint, event_dim=event_dim, name=full_name)


@effectful(type="param")
def _announced(full_name: str, value: torch.Tensor, **_: Any) -> torch.Tensor:
    """Show a parameter to Pyro's handlers."""
    return value
