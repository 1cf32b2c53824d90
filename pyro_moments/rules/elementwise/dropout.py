"""Rules of functions that draw: dropout in training, and stochastic units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function_unary

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Propagation
from pyro_moments.rules.normalised import softmax
from pyro_moments.rules.table import RULES, moment_rule, named

# Functions that drop whole channels, with the rank of an input without a batch axis; None
# if the batch axis is required.
_CHANNELS = {"dropout1d": 2, "dropout2d": None, "dropout3d": 4, "feature_dropout": None}
_ALPHA = ("alpha_dropout", "feature_alpha_dropout")


class DrawingRule(NamedTuple):
    """How a function that draws gets moments, also of certain arguments."""

    of_any: Callable[..., Any]  # takes the propagation and the function's arguments
    at_mean: Callable[..., torch.Tensor]  # the mean of what is drawn, for certain arguments


DRAWING_RULES: dict[Callable, DrawingRule] = {}


def _register(
    name: str, functions: tuple[Callable, ...], of_any: Callable[..., Any], at_mean: Callable
) -> None:
    """Register the rules of functions that draw, of random arguments and of certain ones."""

    def rule(input: Any, *args: Any, **options: Any) -> Any:
        return of_any(input.gaussian().propagation, input, *args, **options)

    rule.__doc__ = f"Serve ``{name}`` of a random value."
    moment_rule(*functions)(rule)
    DRAWING_RULES.update(dict.fromkeys(functions, DrawingRule(of_any, at_mean)))


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
                remedy="use nn.Dropout, or call .eval() on the module" + errors.OR_DRAW,
            )
        if not 0 < p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        if p == 1:
            return (
                ops.scale_shift(input, 0.0) if hasattr(input, "sites") else torch.zeros_like(input)
            )
        if name not in _CHANNELS:
            return ops.drop(input, p, ops.noise_name(), propagation, axis=_axis_of(input))
        return _drop_channels(input, p, propagation, _CHANNELS[name])

    _register(name, named(name), of_any, lambda input, *_, **__: input)
    moment_rule(*named(f"{name}_"), in_place=True)(RULES[named(name)[0]])


def _drop_channels(input: Any, p: float, propagation: Propagation, single: int | None) -> Any:
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
    return ops.drop(input, p, ops.noise_name(), propagation, shape=shape, axis=axis)


def _axis_of(input: Any, otherwise: int = -1) -> int | None:
    """Return the feature axis of the input if it is random."""
    return input.gaussian().axis if hasattr(input, "sites") else otherwise


for _name in ("dropout", *_CHANNELS, *_ALPHA):
    _dropout(_name)


def _bernoulli(propagation: Propagation, input: Any, *, generator: Any = None) -> Any:
    return ops.bernoulli_mask(ops.noise_name("draw"), input, propagation, axis=_axis_of(input))


def _randn_like(propagation: Propagation, input: Any, **_: Any) -> Any:
    like = torch.zeros_like(input.at_mean if hasattr(input, "sites") else input)
    variance, axis = torch.ones_like(like), _axis_of(input)
    return ops.noise(ops.noise_name("noise"), like, variance, propagation, axis=axis)


def _gumbel_softmax(
    propagation: Propagation,
    logits: Any,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
) -> Any:
    if not hard:
        raise UnsupportedMoments(
            "a softmax of logits with Gumbel noise",
            sites=getattr(logits, "sites", ()),
            remedy="use hard=True, which draws one class whatever tau is" + errors.OR_DRAW,
        )
    last = len(logits.shape) - 1
    if not hasattr(logits, "sites"):
        shares = F.softmax(logits, dim).movedim(dim, last)
    else:
        shares = ops.move_axis(softmax(logits, dim).gaussian(), dim % (last + 1), last)
    return ops.move_axis(ops.one_hot(shares, propagation), last, dim % (last + 1))


def bernoulli_draw(probability: torch.Tensor) -> torch.Tensor:
    """Draw zeros and ones, with the gradient of their mean."""
    if has_torch_function_unary(probability):
        return handle_torch_function(bernoulli_draw, (probability,), probability)
    return torch.bernoulli(probability).detach() + (probability - probability.detach())


_register(
    "bernoulli",
    (torch.bernoulli, torch.Tensor.bernoulli, bernoulli_draw),
    _bernoulli,
    lambda input, **_: input,
)
_register(
    "randn_like", (torch.randn_like,), _randn_like, lambda input, **_: torch.zeros_like(input)
)
_register(
    "gumbel_softmax",
    (F.gumbel_softmax,),
    _gumbel_softmax,
    lambda logits, tau=1, hard=False, eps=1e-10, dim=-1: F.softmax(logits, dim),
)
