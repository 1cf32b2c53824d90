"""What torch itself says about shapes and axes, its error messages included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def meta(input: Any) -> torch.Tensor:
    """A tensor without memory, on which torch works out the shape of a result.

    Args:
        input: anything with a shape; numbers are kept.
    """
    if not hasattr(input, "shape"):
        return input
    return torch.empty(tuple(input.shape), device="meta")


def place(dim: int, rank: int) -> int:
    """A dimension counted from the front; torch's own error if there is none.

    Args:
        dim: as the user gave it.
        rank: number of axes.
    """
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return dim % rank


def order(input: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """The old axis at each new place of a permutation that torch carries out.

    Args:
        input: anything with a shape.
        move: permutes the axes of a tensor.
    """
    rank = len(input.shape)
    marked = torch.empty(tuple(range(2, 2 + rank)), device="meta")  # sizes that tell axes apart
    return [size - 2 for size in move(marked).shape]


def axes_of(input: Any, dim: Any) -> tuple[int, ...]:
    """Axes of a reduction, counted from the front; all if none is given.

    Args:
        input: anything with a shape.
        dim: an integer, several, or None.
    """
    rank = len(input.shape)
    meta(input).sum(dim)  # torch's own errors: out of range, or twice
    if dim is None or (isinstance(dim, Sequence) and not len(dim)):
        return tuple(range(rank))
    dims = dim if isinstance(dim, Sequence) else (dim,)
    return tuple(sorted({place(d, rank) for d in dims} if rank else ()))
