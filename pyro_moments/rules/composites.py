"""Normalised logits, as a Categorical makes them."""

from __future__ import annotations

from typing import Any

from moment_calculus.composites import LogSoftmax, LogSumExp
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named


@moment_rule(*named("logsumexp"))
def logsumexp(input: Value, dim: Any, keepdim: bool = False) -> LogSumExp:
    """Serve the normalisation of logits: the trailing axis, kept."""
    _check_trailing(input, dim, "logsumexp")
    if not keepdim:
        raise UnsupportedMoments(
            "logsumexp of a random value is only supported with keepdim=True, to normalise logits",
            sites=input.sites,
            remedy="pass the logits themselves to dist.Categorical(logits=...)",
        )
    return LogSumExp(input.gaussian())


@moment_rule(*named("log_softmax"))
def log_softmax(input: Value, dim: Any = None, *_: Any, **__: Any) -> LogSoftmax:
    """Serve ``log_softmax`` over the trailing axis."""
    _check_trailing(input, dim, "log_softmax")
    return LogSoftmax(input.gaussian())


def _check_trailing(value: Value, dim: Any, name: str) -> None:
    dims = tuple(dim) if isinstance(dim, tuple | list) else (dim,)
    if dims not in ((-1,), (len(value.shape) - 1,)):
        raise UnsupportedMoments(
            f"{name} over dim={dim} of a value of shape {value.shape}",
            sites=value.sites,
            remedy="put the classes on the trailing axis",
        )
