"""Rows of likelihoods: expected log densities and predictive moments."""

import math

from moment_calculus import likelihoods
from moment_calculus.likelihoods import divergences
from moment_calculus.values.propagation import Propagation
from tests.cases import row_functions as functions
from tests.cases.families import CONTINUOUS, COUNTS
from tests.cases.kinds import DivergenceCase
from tests.cases.operand_kinds import Operand
from tests.cases.row_functions import ALPHA, BETA, SET, likelihood
from tests.oracles import quadrature as oracles

DIAGONAL = Propagation(covariance="diagonal")

DATA = Operand((3,), "certain")
LATENT = Operand((3,))
SCALE = Operand((3,), "positive")
HEADS = Operand((3, 2), "correlated", spread=0.4)
LOG_SCALE = Operand((3,), spread=0.4)
SCORES = Operand((3, 3), "certain")
LOGITS = Operand((3, 3), "correlated")

LIKELIHOODS = [
    likelihood("normal", (DATA, LATENT, SCALE), likelihoods.normal, functions.log_normal_density),
    likelihood(
        "normal_value", (LATENT, DATA, SCALE), likelihoods.normal, functions.log_normal_density
    ),
    likelihood(
        "normal_both", (LATENT, LATENT, SCALE), likelihoods.normal, functions.log_normal_density
    ),
    likelihood(
        "normal_heteroscedastic",
        (DATA, HEADS),
        functions.heads(functions.halved_exp),
        functions.plain_heads(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_independent_scale",
        (DATA, LATENT, LOG_SCALE),
        functions.apart(functions.halved_exp),
        functions.plain_apart(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_certain_loc",
        (DATA, DATA, LOG_SCALE),
        functions.apart(functions.halved_exp),
        functions.plain_apart(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_shifted_scale",
        (DATA, HEADS),
        functions.heads(functions.shifted_exp),
        functions.plain_heads(lambda h: h.exp() + 0.2),
        extremes=False,
    ),
    likelihood(
        "normal_bounded_scale",
        (DATA, HEADS),
        functions.heads(functions.bounded),
        functions.plain_heads(lambda h: 2 * h.sigmoid() + 0.1),
        extremes=False,
    ),
    likelihood(
        "normal_log_predictive",
        (DATA, LATENT, SCALE),
        likelihoods.normal_log_predictive,
        functions.log_normal_density,
        log_mean=True,
        nodes=200,
    ),
    likelihood(
        "normal_log_predictive_heteroscedastic",
        (DATA, HEADS),
        functions.heads(functions.shifted_exp, likelihoods.normal_log_predictive),
        functions.plain_heads(lambda h: h.exp() + 0.2),
        log_mean=True,
        nodes=100,
        extremes=False,
    ),
    likelihood(
        "predictive_mean",
        (HEADS,),
        functions.predictive(0),
        lambda out: out[..., 0],
        extremes=False,
    ),
    likelihood(
        "predictive_aleatoric",
        (HEADS,),
        functions.predictive(2),
        lambda out: 0.25 * (2 * out[..., 1]).exp(),
        extremes=False,
    ),
    likelihood(
        "categorical_delta",
        (SCORES, LOGITS),
        functions.categorical("delta"),
        functions.categorical_log_density,
        status="second order",
        nodes=24,
    ),
    likelihood(
        "categorical_delta_independent",
        (SCORES, Operand((3, 3))),
        functions.categorical("delta"),
        functions.categorical_log_density,
        status="second order",
        nodes=24,
        propagation=DIAGONAL,
    ),
    likelihood(
        "categorical_jensen",
        (SCORES, LOGITS),
        functions.categorical("jensen"),
        functions.categorical_log_density,
        status="lower bound",
        nodes=24,
    ),
    *CONTINUOUS,
    *COUNTS,
]


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
