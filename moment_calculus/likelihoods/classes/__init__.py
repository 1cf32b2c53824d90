"""Likelihoods of classes with Gaussian logits: the rules that users choose by ``categorical=``.

To add a rule, write a file for it, its entry in ``RULES`` (in ``OF_PREDICTIONS`` if it is for
predictions), and a row of
``tests/likelihoods/test_classes.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.likelihoods.classes.pairs import Pairs
from moment_calculus.likelihoods.classes.points import Draws, Points
from moment_calculus.likelihoods.classes.rule import (
    ClassRule,
    Delta,
    Jensen,
    Tilted,
    check_classes_last,
)
from moment_calculus.likelihoods.classes.shares import Logistic, Normal, Simplified, Taylor
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.propagation import Propagation, register_replaceable

__all__ = [
    "PREDICTIVE_RULES",
    "RULES",
    "check_classes_last",
    "class_rule",
    "one_hot_moments",
    "predictive_rule",
]
CATEGORICAL = register_replaceable("categorical")  # an instance of ClassRule
RULES: dict[str | None, ClassRule] = {
    rule.name: rule for rule in (Points(), Pairs(), Tilted(), Jensen(), Delta())
}
PREDICTIVE = Points(size=1024, rotated=False)  # equal rows get equal predictions
OF_PREDICTIONS: dict[str | None, ClassRule] = {
    rule.name: rule for rule in (PREDICTIVE, Pairs(), Logistic(), Normal(), Simplified(), Taylor())
}
PREDICTIVE_RULES = tuple(filter(None, OF_PREDICTIONS))


def class_rule(
    logits: Gaussian, noise: Callable[[tuple[int, ...]], Array] | None = None
) -> ClassRule:
    """Return the user's rule for training; ``noise(shape)`` gives draws for "sample"."""
    propagation = logits.propagation
    warn_of_masks(logits, "a likelihood of classes")
    if propagation.categorical == "sample" and noise is not None:
        return Draws(propagation.categorical_draws, noise)
    return RULES.get(propagation.categorical, _by_book(propagation, RULES["points"]))


def predictive_rule(logits: Gaussian) -> ClassRule:
    """Return the rule for predictions, 1024 fixed points if the user's has no probabilities."""
    warn_of_masks(logits, "the probability of classes")
    propagation = logits.propagation
    return OF_PREDICTIONS.get(propagation.categorical, _by_book(propagation, PREDICTIVE))


def _by_book(propagation: Propagation, default: ClassRule) -> ClassRule:
    """Return the rule of the book if the user chose none, and the book has one."""
    chosen = propagation.categorical is not None
    return default if chosen else propagation.replacement(CATEGORICAL) or default


def one_hot_moments(mean: Array, epistemic: Array) -> tuple[Array, Array, Array]:
    """Return predictive mean, epistemic and aleatoric variance of a one-hot outcome."""
    total = mean * (1 - mean)
    epistemic = namespace(mean).minimum(epistemic, total)  # approximations may exceed the total
    return mean, epistemic, total - epistemic
