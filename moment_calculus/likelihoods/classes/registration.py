"""Register a framework's Categorical, Multinomial and OrderedLogistic likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.classes import class_rule, one_hot_moments, predictive_rule
from moment_calculus.likelihoods.classes.mixtures import expected_log_shares, log_mixture
from moment_calculus.likelihoods.classes.ordered import (
    ordered_entropy,
    ordered_logistic,
    ordered_probabilities,
    quantile_of_ordered,
    tempered_ordered_logistic,
)
from moment_calculus.likelihoods.classes.rule import ClassRule, log_coefficient
from moment_calculus.likelihoods.families import LikelihoodTables
from moment_calculus.numerics.arrays import Array, log_softmax, namespace
from moment_calculus.numerics.distributions import class_entropy
from moment_calculus.operations.shapes.sticks import is_simplex
from moment_calculus.predictions.marginals import ClassMarginal
from moment_calculus.values import Gaussian
from moment_calculus.values.spread import broadcast_shape


@dataclass(frozen=True, kw_only=True)
class ClassLikelihoods:
    """Rules of a framework's Categorical, Multinomial and OrderedLogistic."""

    tables: LikelihoodTables
    logits: Callable[[Any], Gaussian]  # of a Categorical or Multinomial with random parameters
    has_random_parameters: Callable[[Any], bool]  # whether a parameter is random
    class_index: Callable[[Any], Array]  # classes as integers
    # Standard normal draws like logits.
    standard_normal: Callable[[Gaussian, tuple[int, ...]], Array]
    make_categorical: Callable[[Array], Any]  # from probabilities to the distribution

    def register_categorical(self, *kinds: type) -> None:
        """Register distribution types as categorical."""
        self.tables.expected.register(*kinds)(self.log_prob)
        self.tables.tempered.register(*kinds)(self.tempered_log_prob)
        self.tables.predictive_moments(*kinds, marginal=self._marginal)(self._predictive_moments)

    def register_multinomial(self, *kinds: type) -> None:
        """Register distribution types as multinomial."""
        self.tables.expected.register(*kinds)(self._log_prob_of_counts)
        self.tables.tempered.register(*kinds)(self._tempered_of_counts)

    def register_ordered(self, *kinds: type) -> None:
        """Register distribution types as ordered logistic."""
        self.tables.expected.register(*kinds)(
            lambda fn, value: ordered_logistic(
                self.class_index(value), *self._predictor_and_cutpoints(fn)
            )
        )
        self.tables.tempered.register(*kinds)(
            lambda fn, value, power: tempered_ordered_logistic(
                power, self.class_index(value), *self._predictor_and_cutpoints(fn)
            )
        )
        self.tables.predictive_moments(*kinds, marginal=self._ordered_marginal)(
            lambda fn: self._one_hot(*ordered_probabilities(*self._predictor_and_cutpoints(fn)))
        )

    def log_prob(self, fn: Any, value: Any) -> Array:
        """Return E_q[log p] of the observed class."""
        if (logs := expected_log_shares(self._probs(fn))) is not None:
            return _chosen(logs, self.class_index(value))
        logits = self.logits(fn)
        return self._rule(logits).log_prob(self.class_index(value), logits)

    def log_mixture(self, mixing: Any, logs: Sequence[Array]) -> Array:
        """Return the bound of E_q[log p] of a mixture; ``logs`` are E_q[log p] by component."""
        if not self.has_random_parameters(mixing):
            return log_mixture(log_softmax(mixing.logits), logs)
        zeros = namespace(logs[0]).zeros_like(logs[0])
        shares = [self.log_prob(mixing, zeros + index) for index in range(len(logs))]
        return log_mixture(namespace(zeros).stack(shares, axis=-1), logs)

    def tempered_log_prob(self, fn: Any, value: Any, power: Any) -> Array:
        """Return (1/a) log E_q[pᵃ] of the observed class, a = ``power``."""
        logits = self.logits(fn)
        return self._rule(logits).tempered(power, self.class_index(value), logits)

    def _probs(self, fn: Any) -> Any:
        """Return the probabilities of a Categorical or Multinomial that has no logits."""
        fn = getattr(fn, "_categorical", fn)
        return self.tables.unwrap(vars(fn).get("probs"))

    def _log_prob_of_counts(self, fn: Any, value: Any) -> Array:
        if (logs := expected_log_shares(self._probs(fn))) is not None:
            counts = value + 0 * logs
            return log_coefficient(counts) + namespace(counts).sum(counts * logs, axis=-1)
        logits = self.logits(fn)
        return self._rule(logits).log_prob_of_counts(value, logits)

    def _tempered_of_counts(self, fn: Any, value: Any, power: Any) -> Array:
        logits = self.logits(fn)
        return self._rule(logits).tempered_of_counts(power, value, logits)

    def _rule(self, logits: Gaussian) -> ClassRule:
        return class_rule(logits, partial(self.standard_normal, logits))

    def _predictive_moments(self, fn: Any) -> tuple:
        if not self.has_random_parameters(fn):
            return self._one_hot(fn.probs, namespace(fn.probs).zeros_like(fn.probs))
        if is_simplex(probs := self._probs(fn)):
            return self._one_hot(probs.mean, probs.variance)
        logits = self.logits(fn)
        return self._one_hot(*predictive_rule(logits).probabilities(logits))

    def _one_hot(self, mean: Array, epistemic_variance: Array) -> tuple:
        """Return predictive moments of the one-hot outcome of random probabilities."""
        return *one_hot_moments(mean, epistemic_variance), self.make_categorical(mean)

    def _marginal(self, name: str, fn: Any) -> ClassMarginal:
        if not self.has_random_parameters(fn):
            return ClassMarginal(
                name,
                "Categorical",
                expected_entropy=lambda: class_entropy(fn.probs),
                mean_quantile=lambda levels: namespace(fn.probs).stack([fn.probs for _ in levels]),
            )
        if is_simplex(self._probs(fn)):
            return ClassMarginal(name, "Categorical")
        logits = self.logits(fn)
        rule = predictive_rule(logits)
        return ClassMarginal(
            name,
            "Categorical",
            partial(rule.information, logits),
            mean_quantile=partial(rule.quantiles, logits),
        )

    def _predictor_and_cutpoints(self, fn: Any) -> tuple[Any, Any]:
        return self.tables.unwrap(fn.predictor), self.tables.unwrap(fn.cutpoints)

    def _ordered_marginal(self, name: str, fn: Any) -> ClassMarginal:
        return ClassMarginal(
            name,
            "OrderedLogistic",
            ordered=True,
            expected_entropy=partial(ordered_entropy, *self._predictor_and_cutpoints(fn)),
            mean_quantile=partial(quantile_of_ordered, *self._predictor_and_cutpoints(fn)),
        )


def _chosen(logs: Array, value: Array) -> Array:
    """Return the entries of [..., classes] at the classes of an array."""
    xp = namespace(logs)
    shape = broadcast_shape(tuple(logs.shape[:-1]), tuple(value.shape))
    wide = xp.broadcast_to(logs, (*shape, logs.shape[-1]))
    return xp.take_along_axis(wide, xp.broadcast_to(value, shape)[..., None], axis=-1)[..., 0]


def missing_logits_error(probs: Any, softmax: str) -> UnsupportedMoments:
    """Return the error for random probabilities that are not a softmax's output."""
    return UnsupportedMoments(
        "a Categorical with random parameters needs logits, or a softmax of them, not other "
        "probabilities",
        sites=getattr(probs, "sites", ()),
        remedy=f"pass logits=..., without a softmax, or probs={softmax}(...)" + OR_DRAW,
    )
