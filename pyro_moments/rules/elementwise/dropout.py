"""Rules of dropout: noise of mean one in training, the identity in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.dropout.noise import drop, noise_name
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.values.propagation import Propagation
from pyro_moments.rules.table import moment_rule, named

# Functions that drop whole channels, with the rank of an input without a batch axis; None
# if the batch axis is required.
_CHANNELS = {"dropout1d": 2, "dropout2d": None, "dropout3d": 4, "feature_dropout": None}
_ALPHA = ("alpha_dropout", "feature_alpha_dropout")

DROPOUT_RULES: dict[Callable, Callable[..., Any]] = {}
"""Of inputs that may be certain, too: called with the propagation and the function's arguments."""


def _dropout(name: str) -> None:
    """Register one function under all its names."""

    def of_any(
        propagation: Propagation,
        input: Any,
        p: float = 0.5,
        training: bool = name not in _ALPHA,
        inplace: bool = False,
        train: Any = None,
    ) -> Any:
        if not (training if train is None else train) or p == 0:
            return input
        if name in _ALPHA:
            raise UnsupportedMoments(
                "alpha dropout draws a random mask, and puts other numbers than zero in the place "
                "of what it drops",
                sites=getattr(input, "sites", ()),
                remedy="use nn.Dropout, or call .eval() on the module" + OR_DRAW,
            )
        if not 0 < p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        if p == 1:
            return scale_shift(input, 0.0) if hasattr(input, "sites") else torch.zeros_like(input)
        if name not in _CHANNELS:
            return drop(input, p, noise_name(), propagation, axis=_axis_of(input))
        return _of_channels(input, p, propagation, _CHANNELS[name])

    def rule(input: Any, *args: Any, **options: Any) -> Any:
        return of_any(input.gaussian().propagation, input, *args, **options)

    rule.__doc__ = f"Serve ``{name}`` of a random value."
    functions = named(name)
    moment_rule(*functions)(rule)
    moment_rule(*named(f"{name}_"), in_place=True)(rule)
    DROPOUT_RULES.update(dict.fromkeys(functions, of_any))


def _of_channels(input: Any, p: float, propagation: Propagation, single: int | None) -> Any:
    """Drop channels, which are on the second axis; on the first without a batch axis."""
    rank = len(input.shape)
    if rank < 2:
        raise UnsupportedMoments(
            f"dropout of the channels of a value of shape {tuple(input.shape)}, which has none",
            sites=getattr(input, "sites", ()),
            remedy="use nn.Dropout, which drops each element by itself",
        )
    kept = 1 if rank == single else 2
    shape = (*input.shape[:kept], *[1] * (rank - kept))
    axis = _axis_of(input, kept - 1 - rank)
    return drop(input, p, noise_name(), propagation, shape=shape, axis=axis)


def _axis_of(input: Any, otherwise: int = -1) -> int | None:
    """Return the feature axis of the input if it is random."""
    return input.gaussian().axis if hasattr(input, "sites") else otherwise


for _name in ("dropout", *_CHANNELS, *_ALPHA):
    _dropout(_name)
