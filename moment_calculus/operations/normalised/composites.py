"""Vector functions of Gaussian logits that keep their source: softmax, logsumexp, log-softmax.

Likelihoods of classes see through them, because a softmax does not change when its logits are
shifted; elsewhere they have moments of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import log_softmax, logsumexp, namespace
from moment_calculus.operations.elementwise.arithmetic import subtract
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.linear.reductions import total
from moment_calculus.operations.normalised.logits import logsumexp_value, softmax_value
from moment_calculus.operations.normalised.normalisation import trailing_features
from moment_calculus.values import Gaussian


class OfClasses(Composite):
    """Base of the functions of logits [..., classes].

    Args:
        source: the Gaussian logits.
    """

    __slots__ = ("_gaussian", "_moved_from")

    def __init__(self, source: Gaussian) -> None:
        super().__init__(source)
        self._gaussian: Gaussian | None = None
        self._moved_from: tuple[OfClasses, Callable[[Any], Any]] | None = None

    def gaussian(self) -> Any:
        """Match the moments once; every later use shares the result, and so its identity."""
        if self._gaussian is None:
            if self._moved_from is None:
                self._gaussian = self._match()
            else:
                whole, move = self._moved_from
                self._gaussian = move(whole.gaussian())
        return self._gaussian

    def moved(self, move: Callable[[Any], Any]) -> Self:
        """The function of the moved logits; its moments are the moved moments of this one.

        Args:
            move: shape operation on values that leaves the classes on the trailing axis.
        """
        result = type(self)(move(self.source))
        result._moved_from = (self, move)
        return result

    def _match(self) -> Any:
        raise NotImplementedError


class LogSumExp(OfClasses):
    """log Σ exp over the classes, kept as an axis of size one."""

    __slots__ = ()
    name = "logsumexp"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return logsumexp(self.source.mean)[..., None]

    def _match(self) -> Gaussian:
        return logsumexp_value(self.source)


class LogSoftmax(OfClasses):
    """Logits minus their logsumexp."""

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


class Softmax(OfClasses):
    """Probabilities of the classes."""

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


class TotalProbability(OfClasses):
    """The sum of the probabilities of the classes, kept as an axis of size one.

    Distributions divide by it, to normalise what is normalised.
    """

    __slots__ = ()
    name = "sum"

    @property
    def at_mean(self) -> Array:
        """One."""
        return namespace(self.source.mean).ones_like(self.source.mean[..., :1])

    def _match(self) -> Gaussian:
        return total(softmax_value(self.source), (len(self.source.shape) - 1,), keepdims=True)
