"""What a rule for classes answers: expectations over Gaussian logits."""

from __future__ import annotations

from typing import Any, NoReturn

from moment_calculus.likelihoods.classes.logits import chosen
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import gammaln, namespace
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values.gaussian import Gaussian


class ClassRule:
    """How expectations of a softmax p of Gaussian logits are computed: one file for each rule.

    A rule gives the expected log-probabilities, which the ELBO needs. One that knows the law of the
    probabilities answers the other questions too, and sets ``has_law``.

    Attributes:
        name: how users select it.
        has_law: whether it knows the law of the probabilities, not their expected logarithm alone.
    """

    name: str = ""
    has_law: bool = False

    def log_probs(self, logits: Gaussian) -> Array:
        """E[log p] of every class, [..., classes].

        Args:
            logits: Gaussian [..., classes].
        """
        raise NotImplementedError

    def log_prob(self, value: Array, logits: Gaussian) -> Array:
        """E[log p] of the observed class, [...].

        Args:
            value: class indices, [...].
            logits: Gaussian [..., classes].
        """
        return chosen(self.log_probs(logits), value)

    def log_prob_of_counts(self, counts: Array, logits: Gaussian) -> Array:
        """E[log Multinomial(counts)], [...].

        Args:
            counts: of the classes, [..., classes].
            logits: Gaussian [..., classes].
        """
        log_probs = self.log_probs(logits)
        counts = counts + 0 * log_probs
        return log_ways(counts) + namespace(counts).sum(counts * log_probs, axis=-1)

    def tempered(self, power: Any, value: Array, logits: Gaussian) -> Array:
        """(1/a) log E[pᵃ] of the observed class, [...].

        Args:
            power: a, positive number or array [...].
            value: class indices, [...].
            logits: Gaussian [..., classes].
        """
        self.refuse("the mean of a power of a probability", logits)

    def tempered_of_counts(self, power: Any, counts: Array, logits: Gaussian) -> Array:
        """(1/a) log E[Multinomial(counts)ᵃ], [...].

        Args:
            power: a, positive number or array [...].
            counts: of the classes, [..., classes].
            logits: Gaussian [..., classes].
        """
        self.refuse("the mean of a power of a Multinomial density", logits)

    def probabilities(self, logits: Gaussian) -> tuple[Array, Array]:
        """Mean and variance of the probability of every class, [..., classes] each.

        Args:
            logits: Gaussian [..., classes].
        """
        self.refuse("the probability of a class", logits)

    def information(self, logits: Gaussian) -> Array:
        """Mutual information of a class and its logits in nats, [...].

        Args:
            logits: Gaussian [..., classes].
        """
        self.refuse("the mutual information of a class and its logits", logits)

    def quantiles(self, logits: Gaussian, levels: Any) -> Array:
        """Quantiles of the probability of every class, [levels, ..., classes].

        Args:
            logits: Gaussian [..., classes].
            levels: numbers between 0 and 1, NumPy array [levels].
        """
        self.refuse("the quantiles of a probability", logits)

    def refuse(self, question: str, logits: Gaussian) -> NoReturn:
        """Refuse a question that the rule has no answer to.

        Args:
            question: what was asked for.
            logits: Gaussian [..., classes].

        Raises:
            UnsupportedMoments: always.
        """
        remedy = (
            "choose categorical='points'"
            if self.has_law
            else ("choose categorical='points' or 'pairs', which know the law of the probabilities")
        )
        raise UnsupportedMoments(
            f"categorical={self.name!r} does not give {question}",
            sites=logits.sites,
            remedy=remedy + OR_DRAW,
        )


def log_ways(counts: Array) -> Array:
    """Logarithm of the multinomial coefficient of counts [..., classes]."""
    xp = namespace(counts)
    return gammaln(xp.sum(counts, axis=-1) + 1) - xp.sum(gammaln(counts + 1), axis=-1)
