"""Recognition of the maximum of the logits, which frameworks subtract before exp in a softmax."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.recognition.base import (
    ElementPart,
    GroupPart,
    Reduction,
    Symbolic,
    View,
    reduction_of,
)
from moment_calculus.recognition.rules import Certain, fallback_rule, recognition_rule


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
