"""Attention with several heads, with its maps of inputs and outputs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from pyro_moments.rules.attention import shares
from pyro_moments.rules.table import moment_rule


@moment_rule(F.multi_head_attention_forward)
def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Serve ``nn.MultiheadAttention`` and transformer layers, by ``covariance="backward"``."""
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    certain_or_random = (in_proj_weight, *weights, in_proj_bias, out_proj_weight, out_proj_bias)
    sites = errors.sites_of(query, key, value, *certain_or_random)
    unusual = (bias_k, bias_v, static_k, static_v, add_zero_attn or None)
    if any(part is not None for part in unusual):
        raise _refused("add_bias_kv, add_zero_attn, or static keys or values", sites)
    if (training and dropout_p) or errors.sites_of(attn_mask, key_padding_mask):
        raise _refused("dropout or a random mask", sites)
    inputs = [query, key, value]
    if not (batched := len(query.shape) == 3):
        ones = {id(x): ops.reshape(x, (x.shape[0], 1, x.shape[1])) for x in inputs}
        inputs = [ones[id(x)] for x in inputs]
    packed = None if use_separate_proj_weight else in_proj_weight
    q, k, v = (_heads(part, num_heads) for part in _mapped(inputs, packed, weights, in_proj_bias))
    mask = _mask(attn_mask, key_padding_mask, num_heads)
    share = shares(q, k, mask)
    mixed = ops.permute(_product(share, v), (2, 0, 1, 3))
    out = ops.linear(ops.reshape(mixed, (*mixed.shape[:2], -1)), out_proj_weight, out_proj_bias)
    out = out if batched else ops.index(out, (slice(None), 0))
    if not need_weights:
        return out, None
    if average_attn_weights:
        share = ops.reduce_mean(share, (1,)) if ops.is_value(share) else share.mean(1)
    return out, share if batched else ops.index(share, 0)


def _refused(what: str, sites: frozenset[str]) -> UnsupportedMoments:
    return UnsupportedMoments(
        f"attention over random values with {what}",
        sites=sites,
        remedy="make the module without these options and pass certain masks; call .eval() on it "
        "if it has dropout" + errors.OR_DRAW,
    )


def _product(share: Any, value: Any) -> Any:
    return ops.matmul(share, value) if ops.is_value(share) or ops.is_value(value) else share @ value


def _mapped(inputs: list[Any], packed: Any, weights: tuple[Any, ...], bias: Any) -> list[Any]:
    """Return queries, keys and values, [length, batch, width]."""
    size = (weights[0] if packed is None else packed).shape[0] // (1 if packed is None else 3)
    thirds = [slice(k * size, (k + 1) * size) for k in range(3)]
    if packed is not None and all(x is inputs[0] for x in inputs):
        # in one map: it knows how its outputs depend on each other
        joint = ops.linear(inputs[0], packed, bias)
        return [ops.index(joint, (..., third)) for third in thirds]
    if packed is not None:
        weights = tuple(ops.index(packed, third) for third in thirds)
    biases = [None if bias is None else ops.index(bias, third) for third in thirds]
    return [ops.linear(*parts) for parts in zip(inputs, weights, biases, strict=True)]


def _heads(projected: Any, count: int) -> Any:
    """Return [batch, heads, length, width of a head]."""
    length, batch, width = projected.shape
    return ops.permute(ops.reshape(projected, (length, batch, count, width // count)), (1, 2, 0, 3))


def _mask(mask: Any, padding: Any, heads: int) -> Any:
    """Return what is added to the scores, [batch, heads, queries, keys] or what broadcasts."""
    parts = [] if mask is None else [_as_addend(mask)]
    if parts and mask.dim() == 3:
        parts = [parts[0].unflatten(0, (-1, heads))]
    if padding is not None:
        padding = padding if padding.dim() == 2 else padding[None]
        parts.append(_as_addend(padding)[:, None, None])
    return sum(parts) if parts else None


def _as_addend(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask, where True hides a key, as what is added to the scores."""
    if mask.dtype is not torch.bool:
        return mask
    zero = torch.zeros(mask.shape, dtype=torch.get_default_dtype(), device=mask.device)
    return zero.masked_fill(mask, -math.inf)
