"""Attention with random queries, keys and values."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule


@moment_rule(F.scaled_dot_product_attention)
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Serve ``F.scaled_dot_product_attention``, by ``covariance="backward"``."""
    sites = errors.sites_of(query, key, value)
    if dropout_p or enable_gqa or ops.is_value(attn_mask):
        raise UnsupportedMoments(
            "attention over random values with dropout, grouped queries or a random mask",
            sites=sites,
            remedy="leave dropout_p and enable_gqa out, and pass a certain mask" + errors.OR_DRAW,
        )
    return ops.matmul(shares(query, key, attn_mask, is_causal, scale), value)


def shares(
    query: Any, key: Any, mask: Any = None, is_causal: bool = False, scale: float | None = None
) -> Any:
    """Return the share of every key for every query, [..., queries, keys], of values or arrays."""
    if not ops.is_value(query) and not ops.is_value(key):
        options = {"attn_mask": mask, "is_causal": is_causal, "scale": scale}
        return F.scaled_dot_product_attention(query, key, _unit(key), **options)
    scores = ops.matmul(query, ops.swap_last(key))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    hidden = _hidden(scores, mask, is_causal)
    return ops.Softmax(ops.scale_shift(scores, factor, hidden).gaussian()).gaussian()


def _hidden(scores: Value, mask: Any, is_causal: bool) -> Any:
    """Return what is added to the scores: −∞ where a key is hidden from a query."""
    like = scores.gaussian().mean
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=like.device).tril()
    if mask is None:
        return 0.0
    return (
        torch.zeros_like(like).masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else mask
    )


def _unit(key: torch.Tensor) -> torch.Tensor:
    """Return values of which attention is the share of every key."""
    unit = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device)
    return unit.expand(*key.shape[:-2], *unit.shape)
