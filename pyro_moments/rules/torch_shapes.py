"""Shapes and axes as torch computes them, with torch's own error messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def on_meta(input: Any) -> torch.Tensor:
    """Return a tensor without memory of the same shape, to compute shapes with; keep numbers."""
    if not hasattr(input, "shape"):
        return input
    return torch.empty(tuple(input.shape), device="meta")


def checked_axis(dim: int, rank: int) -> int:
    """Return a dimension counted from the front; raise torch's own error if it is out of range."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return dim % rank


def permutation_of(input: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """Return the old axis at each new place of a permutation that ``move`` carries out."""
    rank = len(input.shape)
    marked = torch.empty(tuple(range(2, 2 + rank)), device="meta")  # a different size for each axis
    return [size - 2 for size in move(marked).shape]


def axes_of(input: Any, dim: Any) -> tuple[int, ...]:
    """Return the axes of a reduction over ``dim``, counted from the front; all if it is None."""
    rank = len(input.shape)
    on_meta(input).sum(dim)  # raises torch's own errors: axes out of range or repeated
    if dim is None or (isinstance(dim, Sequence) and not len(dim)):
        return tuple(range(rank))
    dims = dim if isinstance(dim, Sequence) else (dim,)
    return tuple(sorted({checked_axis(d, rank) for d in dims} if rank else ()))
