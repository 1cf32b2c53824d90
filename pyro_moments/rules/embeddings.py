"""Rules of tables of which rows are looked up: ``F.embedding`` and ``F.embedding_bag``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule


@moment_rule(F.embedding)
def embedding(
    input: Any,
    weight: Value,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Serve ``F.embedding`` and ``nn.Embedding``: rows of a random table."""
    ops.require_certain(input)
    _check_norm(weight, max_norm)
    return ops.index(weight, input)


@moment_rule(F.embedding_bag)
def embedding_bag(
    input: Any,
    weight: Value,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Value:
    """Serve ``F.embedding_bag`` and ``nn.EmbeddingBag``: sums or means of rows of a table."""
    ops.require_certain(input, offsets, per_sample_weights)
    _check_norm(weight, max_norm)
    if mode == "max":
        raise UnsupportedMoments(
            "the largest entries of an embedding bag",
            sites=weight.sites,
            remedy="use mode='sum' or 'mean', or F.embedding with amax" + errors.OR_DRAW,
        )
    # The bags of the unit matrix say how often each row of the table enters a bag.
    like = weight.gaussian().mean
    unit = torch.eye(weight.shape[0], dtype=like.dtype, device=like.device)
    shares = F.embedding_bag(
        input,
        unit,
        offsets,
        mode=mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
    return ops.matmul(shares, weight)


def _check_norm(weight: Value, max_norm: float | None) -> None:
    if max_norm is not None:
        raise UnsupportedMoments(
            "an embedding with max_norm changes its random table",
            sites=weight.sites,
            remedy="leave max_norm out",
        )
