"""Parameters of guides, looked up without the detours of PyroModule."""

from __future__ import annotations

import weakref
from typing import Any

import pyro
import torch
from pyro.poutine.runtime import effectful
from torch.distributions import transform_to


def parameter(module: Any, name: str) -> torch.Tensor:
    """The parameter of a dotted name; plain dictionaries, for PyroModule's look-ups are slow.

    Args:
        module: that holds it, or modules with it.
        name: its path.
    """
    *path, last = name.split(".")
    for part in path:
        module = module._modules[part]
    if module._pyro_context.active and pyro.settings.get("module_local_params"):
        return _local_parameter(module, last)
    return getattr(module, last)


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
