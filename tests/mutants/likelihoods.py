"""Wrong likelihoods and divergences."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from moment_calculus import likelihoods
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.classes import RULES
from moment_calculus.likelihoods.classes.rule import take_class as chosen_logit
from moment_calculus.numerics.arrays import logsumexp
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.values import Gaussian, Spread
from tests.cases.row_functions import ALPHA, BETA, SET, exp, halved_exp, part, sigmoid
from tests.checks.general import (
    check_batch_invariance,
    check_corners,
    check_float32,
    check_frameworks,
    check_gradients,
    check_oracle,
    check_zero_variance,
)
from tests.mutants import (
    Mutant,
    detached,
    mixed_batch,
    roughened,
    row,
    unrelated,
    wrong_on_jax,
    wrong_rule,
)


def independent_heads(y, out):
    """Without the cross-covariance of location and scale, 2c."""
    return likelihoods.normal(y, unrelated(index(out, (..., 0))), halved_exp(index(out, (..., 1))))


def one_sign(y, out):
    """The cross-covariance with the wrong sign: f reflected about its mean, 2 E f − f."""
    loc = index(out, (..., 0))
    mirrored = scale_shift(loc, -1.0, 2 * loc.mean)
    return likelihoods.normal(y, mirrored, halved_exp(index(out, (..., 1))))


def heads_swapped(y, out):
    return likelihoods.normal(y, index(out, (..., 1)), halved_exp(index(out, (..., 0))))


def scale_at_mean(y, out):
    return likelihoods.normal(y, index(out, (..., 0)), 0.5 * np.exp(out.mean[..., 1]))


def chosen_minus_logsumexp(scores, f):
    take_class = chosen_logit(f.mean, scores.argmax(-1))
    return take_class - logsumexp(f.mean)


def curvature_scaled(by):
    def wrong(scores, f):
        plain = chosen_minus_logsumexp(scores, f)
        return plain + by * (RULES["delta"].log_prob(scores.argmax(-1), f) - plain)

    return wrong


def student_t(norm, count, alpha, beta):
    return divergences.student_t_log_prob(norm, count, alpha, beta, math.lgamma)


def diagonal_curvature(scores, f):
    alone = Gaussian(f.mean, Spread(f.variance), support=f.support, propagation=f.propagation)
    return RULES["delta"].log_prob(scores.argmax(-1), alone)


def bound(kind):
    return lambda scores, f: RULES[kind].log_prob(scores.argmax(-1), f)


def changed(change):
    return lambda *operands: change(likelihoods.normal(*operands))


LIKELIHOOD_MUTANTS = [
    wrong_rule(
        "no variance term", check_oracle, "normal", lambda y, f, s: likelihoods.normal(y, f.mean, s)
    ),
    wrong_rule(
        "variance for the scale",
        check_oracle,
        "normal",
        lambda y, f, s: likelihoods.normal(y, f, s * s),
    ),
    wrong_rule(
        "location and scale swapped",
        check_oracle,
        "normal",
        lambda y, f, s: likelihoods.normal(y, s, abs(f.mean)),
    ),
    wrong_rule("negated", check_oracle, "normal", changed(lambda value: -value)),
    wrong_rule(
        "constant lost",
        check_oracle,
        "normal",
        changed(lambda value: value + 0.5 * math.log(2 * math.pi)),
    ),
    wrong_rule("batch statistics", check_batch_invariance, "normal", changed(mixed_batch)),
    wrong_rule(
        "half the gradient lost",
        check_gradients,
        "normal",
        changed(lambda value: (value + detached(value)) / 2),
    ),
    wrong_rule("rounding", check_float32, "normal", changed(roughened)),
    wrong_rule("one framework differs", check_frameworks, "normal", changed(wrong_on_jax)),
    wrong_rule("offset", check_zero_variance, "normal", changed(lambda value: value + 1e-3)),
    wrong_rule("overflow", check_corners, "normal", changed(lambda value: value * 1e30)),
    wrong_rule(
        "variance of the value lost",
        check_oracle,
        "normal_both",
        lambda y, f, s: likelihoods.normal(y.mean, f, s),
    ),
    wrong_rule("no cross-covariance", check_oracle, "normal_heteroscedastic", independent_heads),
    wrong_rule(
        "cross-covariance with the wrong sign", check_oracle, "normal_heteroscedastic", one_sign
    ),
    wrong_rule("heads swapped", check_oracle, "normal_heteroscedastic", heads_swapped),
    wrong_rule("scale at its mean", check_oracle, "normal_heteroscedastic", scale_at_mean),
    wrong_rule(
        "factor of the scale lost",
        check_oracle,
        "normal_independent_scale",
        lambda y, f, h: likelihoods.normal(y, f, scale_shift(halved_exp(h), 2.0)),
    ),
    wrong_rule(
        "expected log for log expected", check_oracle, "normal_log_predictive", likelihoods.normal
    ),
    wrong_rule("no curvature", check_oracle, "categorical_delta", chosen_minus_logsumexp),
    wrong_rule(
        "curvature with the wrong sign", check_oracle, "categorical_delta", curvature_scaled(-1)
    ),
    wrong_rule("half left out", check_oracle, "categorical_delta", curvature_scaled(2)),
    wrong_rule("variances only", check_oracle, "categorical_delta", diagonal_curvature),
    wrong_rule("jensen for delta", check_oracle, "categorical_delta", bound("jensen")),
    wrong_rule("delta for jensen", check_oracle, "categorical_jensen", bound("delta")),
]


def variance_lost(rule, position):
    """The rule with the random operand at its mean."""

    def wrong(*operands):
        fixed = list(operands)
        fixed[position] = operands[position].mean
        return rule(*fixed)

    return wrong


FAMILY_MUTANTS = [
    wrong_rule(f"{name} at the mean", check_oracle, name, variance_lost(row(name).rule, position))
    for name, position in (
        ("laplace", 1),
        ("student", 2),
        ("multivariate_normal", 1),
        ("ordered_logistic", 1),
    )
] + [
    wrong_rule(
        "degrees and scale swapped",
        check_oracle,
        "student",
        lambda y, df, f, s: likelihoods.student_t(y, s, f, df),
    ),
    wrong_rule(
        "scale at its mean",
        check_oracle,
        "laplace_random_scale",
        lambda y, f, h: likelihoods.laplace(y, f, np.exp(h.mean)),
    ),
    wrong_rule(
        "heads independent",
        check_oracle,
        "student_random_scale",
        lambda y, out: likelihoods.student_t(y, 3.0, unrelated(part(out, 0)), exp(part(out, 1))),
    ),
    wrong_rule(
        "heads as one Gaussian",
        check_oracle,
        "gamma_two_heads",
        lambda y, out: likelihoods.gamma(y, exp(part(out, 0)), exp(part(out, 0))),
    ),
    wrong_rule(
        "location matched by a Gaussian",
        check_oracle,
        "normal_nonlinear_heads",
        lambda y, out: likelihoods.normal(y, sigmoid(part(out, 0)).gaussian(), exp(part(out, 1))),
    ),
    wrong_rule(
        "factor of the rate lost",
        check_oracle,
        "poisson",
        lambda y, f: likelihoods.poisson(y, exp(f)),
    ),
    wrong_rule(
        "outcomes swapped",
        check_oracle,
        "bernoulli",
        lambda y, f: likelihoods.bernoulli(1 - y, logits=f),
    ),
    wrong_rule(
        "logit for probit",
        check_oracle,
        "bernoulli_probit",
        lambda y, f: likelihoods.bernoulli(y, logits=f),
    ),
    wrong_rule(
        "Jacobian lost",
        check_oracle,
        "log_normal",
        lambda y, f, s: likelihoods.normal(np.log(y), f, s),
    ),
]
LIKELIHOOD_MUTANTS += FAMILY_MUTANTS

# ---------------------------------------------------------------------------------------------
# Divergences


def wrong_function(mistake: str, check: Callable, name: str, function: Callable) -> Mutant:
    original = row(name)
    return Mutant(mistake, original, dataclasses.replace(original, function=function), check)


def fixed_prior(m, s):
    """λ* as a constant, not differentiated through."""
    best = detached(divergences.empirical_bayes_variance(m, s * s, ALPHA, BETA, SET))
    squared = (s * s + m * m) / best
    return (-0.5 * (math.log(2 * math.pi) + best.log() + squared)).sum(-1)


def best_variance(m, s, alpha, beta):
    return divergences.empirical_bayes_variance(m, s * s, alpha, beta, SET)[:, 0]


KL, EB, T = "gaussian_kl", "empirical_bayes_variance", "student_t"
DIVERGENCE_MUTANTS = [
    wrong_function("negated", check_oracle, KL, lambda *a: -row(KL).function(*a)),
    wrong_function(
        "posterior and prior swapped",
        check_oracle,
        KL,
        lambda m, s, a, b: row(KL).function(a, b, m, s),
    ),
    wrong_function("deviations for variances", check_oracle, KL, divergences.gaussian_kl),
    wrong_function(
        "distance lost", check_oracle, KL, lambda m, s, a, b: row(KL).function(m, s, m, b)
    ),
    wrong_function(
        "prior gradient lost",
        check_gradients,
        KL,
        lambda m, s, a, b: row(KL).function(m, s, a, detached(b)),
    ),
    wrong_function(
        "negated", check_oracle, "gaussian_entropy", lambda s: -divergences.gaussian_entropy(s * s)
    ),
    wrong_function("β for 2β", check_oracle, EB, lambda m, s: best_variance(m, s, ALPHA, BETA / 2)),
    wrong_function("no hyperprior", check_oracle, EB, lambda m, s: best_variance(m, s, -1.0, 0.0)),
    wrong_function(
        "mean and deviation swapped",
        check_oracle,
        EB,
        lambda m, s: best_variance(s, 0 * m, ALPHA, BETA),
    ),
    wrong_function("λ* as a constant", check_gradients, "empirical_bayes_log_prior", fixed_prior),
    wrong_function("hyperprior swapped", check_oracle, T, lambda q: student_t(q, 4, BETA, ALPHA)),
    wrong_function("one weight too few", check_oracle, T, lambda q: student_t(q, 3, ALPHA, BETA)),
    wrong_function(
        "norm for its square", check_oracle, T, lambda q: student_t(q**0.5, 4, ALPHA, BETA)
    ),
]
