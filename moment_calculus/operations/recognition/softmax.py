"""Recognition of softmax, log-softmax and logsumexp from their parts.

exp(x − s) / Σ exp(x − s) does not depend on a stabiliser s that is the same for all
classes, nor does s + log Σ exp(x − s). Frameworks choose the maximum, without its
gradient.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.operations.normalised.softmax import (
    FunctionOfLogits,
    LogSoftmax,
    LogSumExp,
    Softmax,
)
from moment_calculus.operations.recognition.base import (
    Certain,
    ElementPart,
    GroupPart,
    Reduction,
    Symbolic,
    View,
    fallback_rule,
    recognition_rule,
    reduction_of,
)
from moment_calculus.operations.shapes.moves import move_axis
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian


class Maximum(GroupPart):
    """The part max x over groups."""

    def __init__(
        self, reduction: Reduction, gradient_stopped: bool = False, like: GroupPart | None = None
    ):
        super().__init__(reduction, like)
        if gradient_stopped:  # no gradient flows through it, so it has no moments of its own
            self.set_fallback(self._raise_unrecognised)

    def _raise_unrecognised(self) -> NoReturn:
        raise UnsupportedMoments(
            "a maximum of random values without its gradient, in a function that is not "
            "recognised as a softmax, log-softmax or logsumexp",
            sites=self.sites,
            remedy="call softmax, log_softmax or logsumexp over one axis, without weights and "
            "masks; mask logits by -inf before" + OR_DRAW,
        )


class Finite(GroupPart):
    """The part that tells whether a maximum is finite."""

    def __init__(self, maximum: Maximum) -> None:
        super().__init__(maximum.reduction, maximum)


class Shifted(ElementPart):
    """The part x − max x."""

    def __init__(self, view: View, shift: Reduction) -> None:
        super().__init__(view)
        self.shift = shift  # the groups of the maximum


@recognition_rule("reduce_max", View)
def _maximum(view: View, axes: tuple[int, ...]) -> Any:
    reduction = reduction_of(view, axes)
    return None if reduction is None else Maximum(reduction)


@recognition_rule("maximum", Maximum, Certain, commutes=True)
def _at_least(maximum: Maximum, bound: Any) -> Any:
    lowest = isinstance(bound, int | float) and bound == -math.inf
    return maximum if lowest else None


@recognition_rule("stop_gradient", Maximum)
def _stop_gradient(maximum: Maximum) -> Maximum:
    return Maximum(maximum.reduction, True, maximum)


@recognition_rule("is_finite", Maximum)
def _is_finite(maximum: Maximum) -> Finite:
    return Finite(maximum)


@recognition_rule("select", Finite, Certain, Maximum)
def _finite_maximum(finite: Finite, instead: Any, maximum: Maximum) -> Any:
    """Recognise JAX's guard: the maximum is finite, unless all logits are masked."""
    same = maximum.reduction.same(finite.reduction) and finite.shape == maximum.shape
    return maximum if same and np.array_equal(finite.index, maximum.index) else None


@recognition_rule("subtract", View, Maximum)
def _shifted(view: View, maximum: Maximum) -> Any:
    source = maximum.reduction.view.source
    own = view.source is source and maximum.reduction.is_aligned(maximum, view.index)
    return Shifted(view, maximum.reduction) if own else None


@fallback_rule
def _maximum_of_part(operation: str, *operands: Any, axes: tuple[int, ...] = ()) -> Any:
    """Recognise a stabiliser of logits that are a part themselves, by their value."""
    if not isinstance(operands[0], Symbolic):
        return None
    if operation == "reduce_max" and not isinstance(operands[0], Maximum | Finite):
        source = operands[0].value()
        return _maximum(View(source), axes) if is_value(source) else None
    if operation == "subtract" and isinstance(operands[1], Maximum):
        source = operands[1].reduction.view.source
        own = operands[0].value() is source
        return _shifted(View(source), operands[1]) if own else None
    return None


class Exponential(ElementPart):
    """The part exp(x), or exp(x − max x)."""

    def __init__(self, view: View, shift: Reduction | None = None) -> None:
        super().__init__(view)
        self.shift = shift  # the groups of the maximum, or None


class ExponentialSum(GroupPart):
    """The part Σ exp(x) or Σ exp(x − max x) over groups, or its reciprocal."""

    def __init__(
        self,
        reduction: Reduction,
        shift: Reduction | None,
        inverse: bool = False,
        like: GroupPart | None = None,
    ) -> None:
        super().__init__(reduction, like)
        self.shift, self.inverse = shift, inverse


class LogExponentialSum(GroupPart):
    """The part log Σ exp(x) or log Σ exp(x − max x) over groups."""

    def __init__(self, reduction: Reduction, shift: Reduction | None, like: GroupPart) -> None:
        super().__init__(reduction, like)
        self.shift = shift


@recognition_rule("exp", View)
def _exponential(view: View) -> Any:
    if isinstance(view.source, LogSoftmax) and isinstance(value := view.value(), LogSoftmax):
        return Softmax(value.source)
    return Exponential(view)


@recognition_rule("exp", Shifted)
def _stable_exponential(shifted: Shifted) -> Exponential:
    return Exponential(shifted.view, shifted.shift)


@recognition_rule("reduce_sum", Exponential)
def _sum(terms: Exponential, axes: tuple[int, ...]) -> Any:
    reduction = reduction_of(terms.view, axes)
    if reduction is None or not _is_common(terms.shift, reduction):
        return None
    return ExponentialSum(reduction, terms.shift)


def _is_common(shift: Reduction | None, reduction: Reduction) -> bool:
    """Whether a stabiliser is the same for all elements of each group."""
    if shift is None:
        return True
    return np.array_equal(shift.groups[reduction.groups], shift.groups)


@recognition_rule("abs", ExponentialSum)
def _positive(total: ExponentialSum) -> ExponentialSum:
    return total


@recognition_rule("reciprocal", ExponentialSum)
def _reciprocal(total: ExponentialSum) -> ExponentialSum:
    return ExponentialSum(total.reduction, total.shift, not total.inverse, total)


@recognition_rule("log", ExponentialSum)
def _log(total: ExponentialSum) -> Any:
    if total.inverse:
        return None
    if total.shift is None:
        return _logsumexp(total)
    return LogExponentialSum(total.reduction, total.shift, total)


@recognition_rule("add", LogExponentialSum, Maximum, commutes=True)
def _unshifted(total: LogExponentialSum, maximum: Maximum) -> Any:
    same = maximum.reduction.same(total.shift) and total.shape == maximum.shape
    if not (same and np.array_equal(maximum.index, maximum.reduction.groups[total.index])):
        return None
    return _logsumexp(total)


@recognition_rule("divide", Exponential, ExponentialSum)
def _softmax(terms: Exponential, total: ExponentialSum) -> Any:
    return None if total.inverse else _ratio(Softmax, terms, total)


@recognition_rule("multiply", Exponential, ExponentialSum, commutes=True)
def _softmax_by_product(terms: Exponential, total: ExponentialSum) -> Any:
    return _ratio(Softmax, terms, total) if total.inverse else None


@recognition_rule("subtract", Shifted, LogExponentialSum)
def _stable_log_softmax(logits: Shifted, total: LogExponentialSum) -> Any:
    return _ratio(LogSoftmax, logits, total)


@recognition_rule("subtract", View, LogExponentialSum)
def _log_softmax(logits: View, total: LogExponentialSum) -> Any:
    return _ratio(LogSoftmax, logits, total)


@recognition_rule("log", View)
def _log_of_softmax(view: View) -> Any:
    value = view.value() if isinstance(view.source, Softmax) else None
    return LogSoftmax(value.source) if isinstance(value, Softmax) else None


def _ratio(kind: type[FunctionOfLogits], terms: Any, total: Any) -> Any:
    """Return a function of logits, if numerator and denominator are of the same logits."""
    view, reduction = terms.view, total.reduction
    shift = getattr(terms, "shift", None)
    same_shift = total.shift is None if shift is None else shift.same(total.shift)
    own = view.source is reduction.view.source and same_shift
    if not (own and reduction.is_aligned(total, view.index)):
        return None
    axes = reduction.axes_in(view)
    return None if axes is None else _along(kind, view, axes)


def _along(kind: type[FunctionOfLogits], view: View, axes: tuple[int, ...]) -> Any:
    """Return a function of the classes along one axis; its moments if that axis is not the last."""
    axis, last = _class_axis(kind, view, axes), len(view.shape) - 1
    if axis == last:
        # Log-probabilities are their logits up to a common shift.
        value = view.value()
        return kind(value.source if isinstance(value, LogSoftmax) else value.gaussian())
    logits = move_axis(view.value().gaussian(), axis, last)
    return move_axis(kind(logits).gaussian(), last, axis)


def _class_axis(kind: type[FunctionOfLogits], view: View, axes: tuple[int, ...]) -> int:
    if len(axes) > 1:
        raise UnsupportedMoments(
            f"{kind.name} over axes {axes} of a value of shape {view.shape}",
            sites=view.sites,
            remedy="name one axis, e.g. axis=-1" + OR_DRAW,
        )
    return axes[0]


def _logsumexp(total: GroupPart) -> LogExponentialSum | None:
    reduction = total.reduction
    if math.prod(total.shape) != math.prod(reduction.shape):
        return None
    if not np.array_equal(total.index, reduction.first.reshape(total.shape)):
        return None
    result = LogExponentialSum(reduction, None, total)
    return result.set_fallback(lambda: _logsumexp_value(reduction, total.shape))


def _logsumexp_value(reduction: Reduction, shape: tuple[int, ...]) -> Gaussian:
    view = reduction.view
    axis, last = _class_axis(LogSumExp, view, reduction.axes), len(view.shape) - 1
    logits = move_axis(view.value().gaussian(), axis, last)
    return reshape(LogSumExp(logits).gaussian(), shape)
