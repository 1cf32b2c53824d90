"""Rows of divergences, entropies and log priors."""

from __future__ import annotations

import math

from moment_calculus.likelihoods import divergences
from tests.cases import row_functions as functions
from tests.cases.kinds import DivergenceCase
from tests.cases.row_functions import ALPHA, BETA, SET
from tests.oracles import quadrature as oracles

DIVERGENCES = [
    DivergenceCase(
        "gaussian_kl",
        ((3, 4),) * 4,
        (1, 3),
        lambda m, s, m0, s0: divergences.gaussian_kl(m, s * s, m0, s0 * s0),
        oracles.gaussian_kl,
    ),
    DivergenceCase(
        "gaussian_entropy",
        ((3, 4),),
        (0,),
        lambda s: divergences.gaussian_entropy(s * s),
        oracles.gaussian_entropy,
    ),
    DivergenceCase(
        "empirical_bayes_variance",
        ((3, 4), (3, 4)),
        (1,),
        lambda m, s: divergences.empirical_bayes_variance(m, s * s, ALPHA, BETA, SET)[:, 0],
        functions.by_rows(lambda m, s: oracles.best_prior_variance(m, s, ALPHA, BETA)),
    ),
    DivergenceCase(
        "empirical_bayes_log_prior",
        ((3, 4), (3, 4)),
        (1,),
        lambda m, s: divergences.empirical_bayes_log_prior(m, s * s, ALPHA, BETA, SET),
        functions.by_rows(functions.log_prior_of_set),
    ),
    DivergenceCase(
        "student_t",
        ((3,),),
        (0,),
        lambda q: divergences.student_t_log_prob(q, 4, ALPHA, BETA, math.lgamma),
        functions.by_rows(lambda q: oracles.marginal_log_density(q, 4, ALPHA, BETA)),
    ),
]
