"""Explain from the last step of a value why its moments may differ from those of draws."""

from __future__ import annotations

import numpy as np

from moment_calculus.functions.combinators import with_arrays_moved
from moment_calculus.functions.pairs.mehler import mehler_certificate
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.operations.dropout.noise import Noise
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.operations.linear.reductions import SumOverFeatures
from moment_calculus.operations.normalised.normalisation import Normalised
from moment_calculus.operations.normalised.softmax import LogitsStep
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.values import Gaussian
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.elementwise import with_rule_book
from moment_calculus.values.propagation import EXACT
from moment_calculus.values.spread import features_last

MATCHED = "its input is matched by a Gaussian, which it is not"
DROPPED = 'covariance="diagonal" drops the dependence between its inputs'
APPROXIMATE = "the moments of this function are approximate even for a Gaussian input"
BOOK = "by a rule of the rule book '{name}'"


def reason_of(value: Gaussian) -> str:
    """Return why moments may differ from those of draws; empty if no approximation is known."""
    if _is_replaced(value):
        return BOOK.format(name=value.propagation.rulebook.name)
    if isinstance(value.step, LogitsStep | Normalised):
        return APPROXIMATE
    sources = value.step.inputs
    if (
        not value.propagation.full
        and value.step.assumes_independence
        and not all(x.independent for x in sources)
    ):
        return DROPPED
    if isinstance(value.step, LinearMap) or _keeps_gaussian(value):
        return ""  # exact: mean and covariance need only those of the inputs
    return "" if all(map(is_gaussian, sources)) else MATCHED


def _is_replaced(value: Gaussian) -> bool:
    """Return whether the rule book replaces the exact rule of the value's step."""
    step, book = value.step, value.propagation.rulebook
    if book is EXACT:
        return False
    if step.function is not None:
        return with_rule_book(*step.function) is not step.function[1]
    several = len(step.inputs) > 1
    return several and bool({"product", "linear"} & book.operations.keys())


def is_gaussian(value: Gaussian) -> bool:
    """Return whether a value is itself Gaussian, not only approximated by a Gaussian."""
    return all(map(_keeps_gaussian, ancestors(value)))


def _keeps_gaussian(value: Gaussian) -> bool:
    """Return whether a value is Gaussian if its inputs are."""
    step = value.step
    if isinstance(step, LinearMap):
        return step.mapped is None or all(x is step.mapped or x is step.bias for x in step.inputs)
    if not step.inputs:
        return not isinstance(step, Noise)
    moves = isinstance(step, Moved | SumOverFeatures)
    return moves or step.identity or step.affine is not None


def certificate_of(value: Gaussian) -> Array | None:
    """Return the largest error of a correlation by truncation of Mehler's series, or None.

    Cauchy–Schwarz on the omitted terms, in standard deviations of both features.
    """
    if value.step.function is None:
        return None
    base, activation = value.step.function
    if not base.has_covariance:
        return None
    if base.axis != -1:
        activation = with_arrays_moved(
            activation, lambda part: features_last(part, base.axis), base.shape
        )
    function, mean = with_rule_book(base, activation), features_last(base.mean, base.axis)
    variance = features_last(base.variance, base.axis)
    if function.pair_covariance(mean, variance, base.covariance) is not NotImplemented:
        return None
    order = base.propagation.rulebook.mehler_order
    bound = mehler_certificate(function, mean, base.covariance, order)
    return _largest_pair(bound, features_last(value.variance, base.axis))


def _largest_pair(bound: Array, variance: Array) -> Array:
    """Return the largest entry off the diagonal, in standard deviations of both features."""
    xp = namespace(bound)
    deviation = variance**0.5
    units = deviation[..., :, None] * deviation[..., None, :]
    off_diagonal = constants(1 - np.eye(bound.shape[-1]), bound) * bound
    return xp.max(
        xp.where(units > 0, off_diagonal / xp.where(units > 0, units, 1.0 + 0.0 * units), 0.0)
    )
