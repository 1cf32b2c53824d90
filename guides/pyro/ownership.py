"""Keep guides of one class apart in Pyro's store, which knows parameters by name alone."""

from __future__ import annotations

import weakref
from typing import Any

import pyro
import torch

_SUFFIX = "_unconstrained"  # of PyroModule's own names of constrained parameters
_owned: dict[int, weakref.ref[torch.Tensor]] = {}  # parameters of guides, by identity


def release_names(guide: Any) -> None:
    """Remove other guides' parameters from the store where they have a new guide's names.

    Parameters that belong to no guide, such as those of ``ParamStore.load``, stay: the
    guide takes them over, as Pyro's guides do.
    """
    store = pyro.get_param_store()
    for name, parameter in list(store.named_parameters()):
        if name.startswith(f"{guide._pyro_name}.") and _is_owned(parameter):
            del store[name]


def has_free_parameters(guide: Any) -> bool:
    """Return whether the store has parameters of a guide's names that belong to no guide."""
    parameters = pyro.get_param_store().named_parameters()
    is_named = (name.startswith(f"{guide._pyro_name}.") for name, _ in parameters)
    owned = (_is_owned(parameter) for _, parameter in parameters)
    return any(named and not own for named, own in zip(is_named, owned, strict=True))


def claim_names(guide: Any) -> None:
    """Store a guide's own parameters where another guide's have their names."""
    store = pyro.get_param_store()
    stored, claimed = dict(store.named_parameters()), {}
    for path, parameter in guide.named_parameters():
        _own(parameter)
        name = f"{guide._pyro_name}.{path.removesuffix(_SUFFIX)}"
        other = stored.get(name, parameter)
        if other is not parameter and _is_owned(other):
            claimed[name] = parameter
    if claimed:
        store.set_state({"params": claimed, "constraints": {}})


def _own(parameter: torch.Tensor) -> None:
    key = id(parameter)
    if not _is_owned(parameter):
        _owned[key] = weakref.ref(parameter, lambda _: _owned.pop(key, None))


def _is_owned(parameter: torch.Tensor) -> bool:
    reference = _owned.get(id(parameter))
    return reference is not None and reference() is parameter
