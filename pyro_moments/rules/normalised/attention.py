"""Attention, which raises UnsupportedMoments."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule


@moment_rule(F.scaled_dot_product_attention)
def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Value:
    """Raise UnsupportedMoments: the scores of attention are products of dependent values."""
    raise UnsupportedMoments(
        "attention over random values: the joint moments of the scores, which share the weights "
        "of queries and keys, are not known",
        sites=frozenset().union(*(getattr(p, "sites", ()) for p in (query, key, value))),
        remedy="draw the sites of the queries, keys and values by naming them in sample_sites=",
    )
