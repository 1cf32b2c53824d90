"""Classes whose logits are Gaussian: one law of them for the ELBO, BB-α and predictions.

A file for each rule, which users name by ``categorical=``. To add one, write its file and its entry
in ``RULES``, and a row of ``tests/cases/class_rules.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.likelihoods.classes.expansions import Delta, Jensen
from moment_calculus.likelihoods.classes.logits import check_classes_last
from moment_calculus.likelihoods.classes.pairs import Pairs
from moment_calculus.likelihoods.classes.points import Draws, Points
from moment_calculus.likelihoods.classes.rule import ClassRule
from moment_calculus.likelihoods.classes.tilted import Tilted
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.switches import warn_of_masks
from moment_calculus.values.gaussian import Gaussian

__all__ = [
    "LAWS",
    "RULES",
    "check_classes_last",
    "class_rule",
    "one_hot_moments",
    "predictive_rule",
]

RULES: dict[str, ClassRule] = {
    rule.name: rule for rule in (Points(), Pairs(), Tilted(), Jensen(), Delta())
}
LAWS = tuple(name for name, rule in RULES.items() if rule.has_law)
PREDICTIVE = Points(size=1024, turned=False)  # rows are alike, whatever their place


def class_rule(
    logits: Gaussian, noise: Callable[[tuple[int, ...]], Array] | None = None
) -> ClassRule:
    """The rule that a user chose for training.

    Args:
        logits: Gaussian [..., classes].
        noise: gives standard normal draws of a shape, for ``categorical="sample"``.
    """
    propagation = logits.propagation
    warn_of_masks(logits, "a likelihood of classes")
    if propagation.categorical == "sample" and noise is not None:
        return Draws(propagation.categorical_draws, noise)
    return RULES[propagation.categorical]


def predictive_rule(logits: Gaussian) -> ClassRule:
    """The rule for predictions: pairs where they were chosen, else points.

    Args:
        logits: Gaussian [..., classes].
    """
    warn_of_masks(logits, "the probability of classes")
    return RULES["pairs"] if logits.propagation.categorical == "pairs" else PREDICTIVE


def one_hot_moments(mean: Array, epistemic: Array) -> tuple[Array, Array, Array]:
    """Predictive mean, epistemic and aleatoric variance of the one-hot outcome.

    Args:
        mean: probabilities of the classes, [..., classes].
        epistemic: their variances; at most those of the outcome are taken.
    """
    total = mean * (1 - mean)
    epistemic = namespace(mean).minimum(epistemic, total)
    return mean, epistemic, total - epistemic
