"""Wrong means of powers."""

from __future__ import annotations

from functools import partial

from moment_calculus import likelihoods
from moment_calculus.likelihoods.multivariate import log_mean_of_normal_powers
from moment_calculus.likelihoods.rates import tempered_poisson
from moment_calculus.numerics.arrays import diagonal, diagonal_matrix
from moment_calculus.numerics.special import constants
from tests.cases.likelihood_functions import exp, times
from tests.cases.tempered import POWER, SCALES
from tests.checks.general import check_oracle
from tests.mutants import wrong_rule


def of_vector(y, f, power=POWER, kept=lambda covariance: covariance):
    """The row's own rule, but for what is changed."""
    scale = constants(SCALES, f.mean)
    return log_mean_of_normal_powers(y - f.mean, kept(f.joint_covariance()), scale, power) / power


def variances(covariance):
    return diagonal_matrix(diagonal(covariance))


TEMPERED_MUTANTS = [
    wrong_rule("power lost", check_oracle, "tempered_normal", likelihoods.normal_log_predictive),
    wrong_rule("expectation", check_oracle, "tempered_normal", likelihoods.normal),
    wrong_rule(
        "variance not tempered",
        check_oracle,
        "tempered_normal",
        lambda y, f, s: likelihoods.normal_log_predictive(y, f, s * POWER**-0.5),
    ),
    wrong_rule(
        "variances only",
        check_oracle,
        "tempered_dependent_normals",
        partial(of_vector, kept=variances),
    ),
    wrong_rule(
        "power of one", check_oracle, "tempered_dependent_normals", partial(of_vector, power=1.0)
    ),
    wrong_rule(
        "power outside",
        check_oracle,
        "tempered_poisson",
        lambda y, f: POWER * tempered_poisson(1.0, y, times(exp(f), 2.0)),
    ),
    wrong_rule("mean alone", check_oracle, "tempered_factor", lambda f: f.mean),
]
