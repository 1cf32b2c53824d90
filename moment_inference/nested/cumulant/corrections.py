"""Corrections of conditional Gaussians, by the sums that their structure allows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.cumulant.all_pairs import sums_over_all_pairs
from moment_inference.nested.cumulant.derivatives import Derivatives
from moment_inference.nested.cumulant.through_border import BORDER, order_of, sums_through_border
from moment_inference.nested.given.host import ConditionalModel

SHARE = 0.25  # of the correction, that its next order may be: measured, see nested_inference.md


class Corrections(NamedTuple):
    """Corrections of the Gaussians q(x | θ) at points [g]."""

    evidence: np.ndarray  # of log p(y | θ), nats, [g]
    mean: np.ndarray  # shifts of the means, [g, d]
    variance: np.ndarray  # changes of the variances, [g, d]
    third: np.ndarray  # third central moments, [g, d]
    error: np.ndarray  # that the correction of log p(y | θ) may have, nats, [g]


def corrections(model: ConditionalModel, conditional: Conditional) -> Corrections:
    """Return the second cumulant of log p(x, y | θ) − log q(x) under q, and what it moves.

    At the optimum the Hermite terms of order one and two of that difference R vanish. With log
    likelihoods f_i(η_i), a_in = E f_i⁽ⁿ⁾, C = Cov(η), c = Cov(x, η) and n from 3 on,

    - log p(y | θ) = ELBO + ½ Var R = ELBO + ½ Σ_ij Σ_n a_in a_jn C_ijⁿ / n!,
    - the means move by ½ E[x R²] = Σ_j c_j Σ_i Σ_n a_in a_j(n+1) C_ijⁿ / n!,
    - third central moments are E[x³ R] = Σ_i a_i3 c_i³.

    Pairs of exponentials (f = λ e^{rη} and a linear function: Poisson, Gamma, Weibull) are summed
    in closed form, others up to n = 5. Where local latents meet through a small border only, time
    and memory are linear in the number of predictors. Source: ``docs/maths.md``, nested inference.
    """
    moments = conditional.predictor, conditional.variance
    derivatives = Derivatives.of(model.higher(conditional.theta, *moments))
    factors, design = conditional.factors, conditional.design
    parts = factors.border_parts(design, BORDER)
    order = None if parts is None else order_of(derivatives, parts, conditional.variance)
    if parts is None or order is None:
        sums = sums_over_all_pairs(derivatives, factors, design)
    else:
        sums = sums_through_border(derivatives, parts, order)
    mean = factors.solve(design.transposed_times(sums.slopes))
    evidence, error = sums.evidence, SHARE * sums.evidence
    return Corrections(evidence, mean, np.zeros_like(mean), sums.third, error)
