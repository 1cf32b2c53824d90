"""The interface of a rule for classes: expectations of a softmax of Gaussian logits."""

from __future__ import annotations

from typing import Any, NoReturn

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.classes.logits import take_class
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import gammaln, namespace
from moment_calculus.values.gaussian import Gaussian


class ClassRule:
    """How expectations of p = softmax(f) of Gaussian logits f [..., classes] are computed.

    Every rule gives the expected log-probabilities, which the ELBO needs. A rule that
    knows the distribution of the probabilities answers the other questions, too, and sets
    ``has_distribution``.
    """

    name: str = ""  # by which users select it
    has_distribution: bool = False  # whether it knows the distribution of the probabilities

    def log_probs(self, logits: Gaussian) -> Array:
        """Return E[log p] of every class, [..., classes]."""
        raise NotImplementedError

    def log_prob(self, value: Array, logits: Gaussian) -> Array:
        """Return E[log p] of the observed class ``value``, [...]."""
        return take_class(self.log_probs(logits), value)

    def log_prob_of_counts(self, counts: Array, logits: Gaussian) -> Array:
        """Return E[log Multinomial(counts)], [...], of counts [..., classes]."""
        log_probs = self.log_probs(logits)
        counts = counts + 0 * log_probs
        return log_coefficient(counts) + namespace(counts).sum(counts * log_probs, axis=-1)

    def tempered(self, power: Any, value: Array, logits: Gaussian) -> Array:
        """Return (1/a) log E[pᵃ] of the observed class, [...], for a positive power a."""
        self.raise_unsupported("the mean of a power of a probability", logits)

    def tempered_of_counts(self, power: Any, counts: Array, logits: Gaussian) -> Array:
        """Return (1/a) log E[Multinomial(counts)ᵃ], [...], for a positive power a."""
        self.raise_unsupported("the mean of a power of a Multinomial density", logits)

    def probabilities(self, logits: Gaussian) -> tuple[Array, Array]:
        """Return mean and variance of the probability of every class, [..., classes] each."""
        self.raise_unsupported("the probability of a class", logits)

    def information(self, logits: Gaussian) -> Array:
        """Return the mutual information of a class and its logits in nats, [...]."""
        self.raise_unsupported("the mutual information of a class and its logits", logits)

    def quantiles(self, logits: Gaussian, levels: Any) -> Array:
        """Return quantiles of every class's probability, [levels, ..., classes]."""
        self.raise_unsupported("the quantiles of a probability", logits)

    def raise_unsupported(self, question: str, logits: Gaussian) -> NoReturn:
        """Raise UnsupportedMoments for a question that the rule cannot answer."""
        remedy = (
            "choose categorical='points'"
            if self.has_distribution
            else ("choose categorical='points' or 'pairs', which know the law of the probabilities")
        )
        raise UnsupportedMoments(
            f"categorical={self.name!r} does not give {question}",
            sites=logits.sites,
            remedy=remedy + OR_DRAW,
        )


def log_coefficient(counts: Array) -> Array:
    """Return the logarithm of the multinomial coefficient of counts [..., classes]."""
    xp = namespace(counts)
    return gammaln(xp.sum(counts, axis=-1) + 1) - xp.sum(gammaln(counts + 1), axis=-1)
