"""Expected entropies E_q H[p] of observations given random parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.likelihoods.expectations import check_certain, expectation, expected_value
from moment_calculus.likelihoods.links import log
from moment_calculus.likelihoods.trials import class_probability_functions
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.entropies import surprisal, surprisal_of_log
from moment_calculus.numerics.special import constants, digamma, gammaln, namespace


def normal_entropy(scale: Any) -> Array:
    """Return E[H] of a Normal likelihood, ½ log(2πe) + E[log s]."""
    return 0.5 * math.log(2 * math.pi * math.e) + expected_value(log(scale))


def student_t_entropy(df: Any, scale: Any) -> Array:
    """Return E[H] of a Student-t likelihood with certain degrees of freedom ν.

    It is (ν + 1)/2 (ψ((ν + 1)/2) − ψ(ν/2)) + log(√ν B(ν/2, ½)) + E[log s].
    """
    check_certain(df=df)
    scales = expected_value(log(scale))
    like = next((part for part in (df, scales) if hasattr(part, "shape")), None)
    if like is None:
        raise TypeError("a Student likelihood without any array")
    df = constants(df, like) if isinstance(df, int | float) else df
    half, more = df / 2, (df + 1) / 2
    shape = more * (digamma(more) - digamma(half)) + 0.5 * namespace(df).log(df)
    return shape + gammaln(half) + gammaln(0 * df + 0.5) - gammaln(more) + scales


def expected_surprisal(log_prob: Callable[..., Array], value: Array, *arguments: Any) -> Array:
    """Return E[−p log p] of counts [counts, ...]: their sum is the expected entropy."""
    # All counts share their nodes: the sum is smooth in the parameters, even where a
    # single term is sharper than the nodes are close.
    return expectation(
        lambda value, *points: surprisal_of_log(log_prob(value, *points)), value, *arguments
    )


def ordered_entropy(predictor: Any, cutpoints: Array) -> Array:
    """Return E[H] of an ordered logistic likelihood, by quadrature over its predictor."""
    shares = class_probability_functions(cutpoints)
    knots = tuple(cutpoints[..., i] for i in range(cutpoints.shape[-1]))
    return expectation(
        lambda f: sum(surprisal(share(f)) for share in shares), predictor, knots=knots
    )
