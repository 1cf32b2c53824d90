"""Rules of concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moment_calculus.operations.shapes import concatenation
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.torch_shapes import checked_axis, on_meta


@moment_rule(*named("cat", "concat", "concatenate"))
def cat(tensors: Sequence[Any], dim: int = 0) -> Value:
    """Serve ``torch.cat``."""
    torch.cat([on_meta(tensor) for tensor in tensors], dim)
    rank = len(tensors[0].shape)
    return concatenation.concatenate(tensors, checked_axis(dim, rank) - rank)


@moment_rule(*named("stack"))
def stack(tensors: Sequence[Any], dim: int = 0) -> Value:
    """Serve ``torch.stack``."""
    torch.stack([on_meta(tensor) for tensor in tensors], dim)
    rank = len(tensors[0].shape) + 1
    return concatenation.stack(tensors, checked_axis(dim, rank) - rank)


@moment_rule(torch.hstack)
def hstack(tensors: Sequence[Any]) -> Value:
    """Serve ``torch.hstack``."""
    return cat(tensors, 0 if len(tensors[0].shape) == 1 else 1)
