"""Rules by which distributions validate their parameters, and of comparisons."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Value
from pyro_moments import _host
from pyro_moments.rules.table import MeanCheck, moment_rule, named

DEPTH = 8  # frames between a rule and the line that called the function


def fills_in_ordered_logistic() -> bool:
    """Return whether the constructor of Pyro's ``OrderedLogistic`` fills in its probabilities.

    The call does not show it: the target is a plain tensor, as in a user's assignment,
    which is not supported. Frames are compared with the constructor's code object, so
    that Pyro stays unchanged.
    """
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities."""
    if not fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.index_put(x, (mask,), values) or torch.cat",
        )
    # The likelihood's rule starts from the predictor; NaN keeps others from using these.
    input[key] = torch.nan


def _at_mean(operand: Any) -> Any:
    return getattr(operand, "at_mean", operand)


def _comparison(kind: str, holds: Callable) -> Callable:
    def rule(input: Any, other: Any) -> MeanCheck:
        outcome = holds(_at_mean(input), _at_mean(other))
        random = lambda: ops.compare(kind, *map(_moments_of, (input, other)))  # noqa: E731
        return MeanCheck(outcome, errors.sites_of(input, other), random)

    return rule


def _moments_of(operand: Any) -> Any:
    return operand.gaussian() if isinstance(operand, Composite) else operand


# Comparisons by their names in Python and in torch.
_COMPARISONS = {
    "eq": "eq __eq__",
    "ne": "ne not_equal __ne__",
    "gt": "gt greater __gt__",
    "ge": "ge greater_equal __ge__",
    "lt": "lt less __lt__",
    "le": "le less_equal __le__",
}
for _kind, _names in _COMPARISONS.items():
    moment_rule(*named(*_names.split()), takes=(Composite,))(
        _comparison(_kind, ops.OPERATORS[_kind])
    )


def _combination(holds: Callable, of_conditions: Callable) -> Callable:
    """Return the rule that combines outcomes of comparisons, and certain booleans."""

    def combine(*operands: Any) -> Any:
        parts = [part.condition() if isinstance(part, MeanCheck) else part for part in operands]
        random = any(isinstance(part, ops.Condition) for part in parts)
        return of_conditions(*parts) if random else holds(*parts)

    def rule(*operands: Any) -> MeanCheck:
        for operand in operands:
            if hasattr(operand, "sites"):
                _require_check(operand)
        outcomes = (getattr(operand, "outcome", operand) for operand in operands)
        return MeanCheck(holds(*outcomes), errors.sites_of(*operands), lambda: combine(*operands))

    return rule


# Combinations by operator and by their names; constraints to an interval use the first.
for _holds, _of_conditions, _names in (
    (operator.and_, ops.logical_and, "__and__ __rand__ logical_and bitwise_and"),
    (operator.or_, ops.logical_or, "__or__ __ror__ logical_or bitwise_or"),
    (operator.xor, ops.logical_xor, "__xor__ __rxor__ logical_xor bitwise_xor"),
    (operator.invert, ops.logical_not, "__invert__ logical_not bitwise_not"),
):
    moment_rule(*named(*_names.split()), takes=(MeanCheck,))(_combination(_holds, _of_conditions))


@moment_rule(*named("all"), takes=(MeanCheck,))
def all_true(input: MeanCheck, dim: int | None = None, keepdim: bool = False) -> Any:
    """Serve constraints of vectors, which hold if every component's does, and their validation."""
    _require_check(input)
    if dim is not None:
        return MeanCheck(input.outcome.all(dim, keepdim), input.sites)
    if not errors.called_by("torch.distributions.geometric"):  # which validates itself by all()
        raise _random_truth(input)
    return input.outcome.all()


def least_truth(input: MeanCheck, dim: int) -> tuple[MeanCheck, None]:
    """Return the minima of truth values, which constraints of Cholesky factors take."""
    _require_check(input)
    return MeanCheck(input.outcome.min(dim)[0], input.sites), None


@moment_rule(_host.is_all_true, takes=(MeanCheck,))
def is_all_true(input: MeanCheck) -> torch.Tensor:
    """Serve the validation of distribution parameters."""
    _require_check(input)
    return _host.is_all_true(input.outcome)


def _require_check(operand: Any) -> None:
    if not isinstance(operand, MeanCheck):
        raise _random_truth(operand)


def _random_truth(operand: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        "the truth of a random value is random",
        sites=operand.sites,
        remedy="do not branch on random values" + errors.OR_DRAW,
    )


@moment_rule(*named("cholesky"), torch.linalg.cholesky)
def cholesky(input: Any) -> Any:
    """Serve covariances with an LKJ prior or a random amplitude; refuse others."""
    return ops.cholesky(input)


@moment_rule(torch.linalg.cholesky_ex)
def cholesky_ex(input: Any) -> Any:
    """Serve the validation of covariance matrices."""
    factor = ops.cholesky(input)
    success = torch.zeros(factor.shape[:-2], dtype=torch.int, device=input.at_mean.device)
    kind: Any = torch.return_types
    return kind.linalg_cholesky_ex((factor, success))


@moment_rule(*named("isclose"))
def isclose(input: Any, other: Any, **options: Any) -> Any:
    """Serve the validation of covariance matrices, which are symmetric; refuse all others."""
    ops.cholesky(input)
    return torch.isclose(input.at_mean, _at_mean(other), **options)


@moment_rule(*named("tril"))
def tril(input: Value, diagonal: int = 0) -> Value:
    """Serve ``tril``; refuse unknown Cholesky factors, which distributions validate so."""
    if errors.called_by("torch.distributions.constraints"):
        ops.check_factor(input)
    return ops.scale_shift(input, torch.ones_like(input.at_mean).tril(diagonal))
