"""Compute in double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyro
import torch
from pyro import poutine

from pyro_moments._host import tree_map
from pyro_moments.fitting.parameters import unconstrained


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Make new tensors float64 within the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def to_float64(data: Any) -> Any:
    """Return floating-point tensors as float64, also inside tuples and dictionaries."""

    def of(part: Any) -> Any:
        floating = isinstance(part, torch.Tensor) and part.is_floating_point()
        return part.double() if floating else part

    return tree_map(of, data)


def convert_parameters(evaluate: Callable[[], Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Turn the parameters that an evaluation uses into float64; return them with their old data.

    Single precision may end an evaluation before it has used all of them, so it is
    repeated.
    """
    single, failure = [torch.empty(0)], None
    changed: list[tuple[torch.Tensor, torch.Tensor]] = []
    while single:
        failure = None
        with poutine.trace(param_only=True) as capture:
            try:
                evaluate()
            except Exception as error:
                failure = error
        leaves = unconstrained(capture).values()
        single = [leaf for leaf in leaves if leaf.dtype is torch.float32]
        for leaf in single:
            changed.append((leaf, leaf.data))
            leaf.data = leaf.data.double()
    if failure is not None:
        restore_parameters(changed)
        raise failure
    return changed


def restore_parameters(changed: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Restore the old data of parameters that :func:`convert_parameters` has changed."""
    for leaf, data in changed:
        leaf.data = data


def has_float64(guide: Any) -> bool:
    """Return whether a guide, or Pyro's store for one that is no module, has float64 parameters."""
    is_module = isinstance(guide, torch.nn.Module)
    leaves: Any = guide.parameters() if is_module else pyro.get_param_store().values()
    return any(leaf.dtype is torch.float64 for leaf in leaves)
