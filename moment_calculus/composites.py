"""Vector functions of Gaussian logits that keep their source: logsumexp and log-softmax.

Likelihoods of classes see through them, because a softmax does not change when its logits are
shifted. Any other use is refused: their own moments are not known.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.arrays import Array
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.special import log_softmax, logsumexp
from moment_calculus.values import Gaussian


class Composite:
    """Base of the functions of logits [..., classes].

    Args:
        source: the Gaussian logits.
    """

    __slots__ = ("source",)
    name = ""

    def __init__(self, source: Gaussian) -> None:
        self.source = source

    @property
    def sites(self) -> frozenset[str]:
        """Names of the latent sites the value depends on."""
        return self.source.sites

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.at_mean.shape)

    def gaussian(self) -> Any:
        """Refuse: the result is not moment-matched."""
        raise UnsupportedMoments(
            f"{self.name} of random logits is only supported inside a Categorical",
            sites=self.sites,
            remedy="pass the logits themselves to dist.Categorical(logits=...)",
        )


class LogSumExp(Composite):
    """log Σ exp over the classes, kept as an axis of size one."""

    name = "logsumexp"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return logsumexp(self.source.mean)[..., None]


class LogSoftmax(Composite):
    """Logits minus their logsumexp."""

    name = "log_softmax"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return log_softmax(self.source.mean)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.source.shape
