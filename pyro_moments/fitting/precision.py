"""Computing in double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyro
import torch
from pyro import poutine

from pyro_moments.fitting.parameters import unconstrained


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """New tensors are doubles."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def doubled(data: Any) -> Any:
    """Tensors of single precision as doubles, also inside tuples and dictionaries.

    Args:
        data: arguments.
    """

    def of(part: Any) -> Any:
        floating = isinstance(part, torch.Tensor) and part.is_floating_point()
        return part.double() if floating else part

    return torch.utils._pytree.tree_map(of, data)


def make_doubles(evaluate: Callable[[], Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Turn the parameters that an evaluation meets into doubles.

    Single precision among them may end an evaluation before it met them all: then there is another.

    Args:
        evaluate: what meets them.

    Returns:
        Unconstrained parameters that were no doubles, with what they were.
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
        give_back(changed)
        raise failure
    return changed


def give_back(changed: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Let parameters be what they were.

    Args:
        changed: unconstrained parameters, with that.
    """
    for leaf, data in changed:
        leaf.data = data


def has_doubles(guide: Any) -> bool:
    """Whether any parameter of a guide, or in Pyro's store where it is no module, is a double.

    Args:
        guide: the guide.
    """
    is_module = isinstance(guide, torch.nn.Module)
    leaves: Any = guide.parameters() if is_module else pyro.get_param_store().values()
    return any(leaf.dtype is torch.float64 for leaf in leaves)
