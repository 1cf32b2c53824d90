"""Computing in double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

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


def make_doubles(evaluate: Callable[[], Any]) -> None:
    """Turn the parameters that an evaluation meets into doubles.

    Single precision among them may end an evaluation before it met them all: then there is another.

    Args:
        evaluate: what meets them.
    """
    single, failure = [torch.empty(0)], None
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
            leaf.data = leaf.data.double()
    if failure is not None:
        raise failure
