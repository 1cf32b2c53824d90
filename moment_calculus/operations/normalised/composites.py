"""Vector functions of Gaussian logits that keep the logits: softmax, logsumexp, log-softmax.

Likelihoods of classes use the logits directly, because a softmax does not change when its
logits are shifted; other operations use the moments of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import log_softmax, logsumexp, namespace
from moment_calculus.operations.elementwise.arithmetic import subtract
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.normalised.logits import logsumexp_value, softmax_value
from moment_calculus.operations.normalised.normalisation import trailing_features
from moment_calculus.values import Gaussian


class FunctionOfLogits(Composite):
    """Base class of functions of Gaussian logits [..., classes], the source."""

    __slots__ = ("_gaussian", "_moved_from")

    def __init__(self, source: Gaussian) -> None:
        super().__init__(source)
        self._gaussian: Gaussian | None = None
        self._moved_from: tuple[FunctionOfLogits, Callable[[Any], Any]] | None = None

    def gaussian(self) -> Any:
        """Return the moments as a value, computed once so that every use is the same value."""
        if self._gaussian is None:
            if self._moved_from is None:
                self._gaussian = self._match()
            else:
                whole, move = self._moved_from
                self._gaussian = move(whole.gaussian())
        return self._gaussian

    def moved(self, move: Callable[[Any], Any]) -> Self:
        """Apply a shape operation that keeps the trailing axis to the logits and the moments."""
        result = type(self)(move(self.source))
        result._moved_from = (self, move)
        return result

    def _match(self) -> Any:
        raise NotImplementedError


class LogSumExp(FunctionOfLogits):
    """The logarithm of Σ exp over the classes, kept as an axis of size one."""

    __slots__ = ()
    name = "logsumexp"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return logsumexp(self.source.mean)[..., None]

    def _match(self) -> Gaussian:
        return logsumexp_value(self.source)


class LogSoftmax(FunctionOfLogits):
    """The logits minus their logsumexp."""

    __slots__ = ()
    name = "log_softmax"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return log_softmax(self.source.mean)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.source.shape

    def _match(self) -> Any:
        logits = trailing_features(self.source, "a log-softmax")
        return subtract(logits, logsumexp_value(logits))


class Softmax(FunctionOfLogits):
    """The probabilities of the classes."""

    __slots__ = ()
    name = "softmax"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return namespace(self.source.mean).exp(log_softmax(self.source.mean))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.source.shape

    def _match(self) -> Gaussian:
        return softmax_value(self.source)


class TotalProbability(FunctionOfLogits):
    """The sum of the probabilities of the classes, kept as an axis of size one."""

    __slots__ = ()
    name = "sum"  # distributions divide by it to normalise their probabilities

    @property
    def at_mean(self) -> Array:
        """The sum at the mean of the logits, one."""
        return namespace(self.source.mean).ones_like(self.source.mean[..., :1])

    def _match(self) -> Gaussian:
        return reduce_sum(softmax_value(self.source), (len(self.source.shape) - 1,), keepdims=True)
