"""Rows of means of powers of densities, (1/a) log E[pᵃ], each against torch's own density."""

from functools import partial

from pyro.distributions import GammaPoisson
from torch import distributions

from moment_calculus import likelihoods
from moment_calculus.likelihoods.families import FAMILIES
from moment_calculus.likelihoods.multivariate import log_mean_of_normal_powers
from moment_calculus.numerics.arrays import constants, namespace
from tests.cases.operand_kinds import Operand
from tests.cases.row_functions import (
    ROOT,
    classes,
    cut_points,
    density,
    exp,
    likelihood,
    log_geometric,
    log_multivariate,
    log_normal_density,
    log_ordered,
    log_probit,
    ndtr,
    part,
    plain_heads,
    shifted_exp,
    sigmoid,
    softplus,
    times,
)

POWER = 0.5
DATA = Operand((3,), "certain")
POSITIVE = Operand((3,), "positive")
COUNT = Operand((3,), "count")
BINARY = Operand((3,), "binary")
LATENT = Operand((3,))
HEADS = Operand((3, 2), "correlated", spread=0.4)
SCORES = Operand((3, 3), "certain")
JOINT = Operand((3, 3), "correlated")
SERVED = {family.name: family.tempered for family in FAMILIES if family.tempered}
SCALES = (0.5, 1.2, 0.8)


def tempered(name, operands, rule, plain, **options):
    """A row whose rule takes the power first."""
    given = {"log_mean": True, "power": POWER, "nodes": 100, "of_power": rule, **options}
    return likelihood(f"tempered_{name}", operands, partial(rule, POWER), plain, **given)


def of_family(name, parameters=lambda *values: values, **odds):
    """The rule of a family; its parameters from the operands beside the observation."""

    def rule(power, value, *operands):
        named = {key: function(*operands) for key, function in odds.items()}
        return SERVED[name](power, value, *parameters(*operands), **named)

    return rule


def of_odds(name, **odds):
    return of_family(name, lambda *operands: operands[:-1], **odds)


def of_vector(power, y, f):
    """Three dependent Normals with scales of their own."""
    scale = constants(SCALES, f.mean)
    return log_mean_of_normal_powers(y - f.mean, f.joint_covariance(), scale, power) / power


def log_vector(y, f):
    scale = constants(SCALES, f)
    return distributions.Normal(f, scale, validate_args=False).log_prob(y).sum(-1)


def laplace(power, y, f, s):
    """A family without a rule of its own, by quadrature on its density."""

    def log_density(y, f, s):
        xp = namespace(s)
        return -xp.abs(y - f) / s - xp.log(2 * s)

    return likelihoods.log_expectation(log_density, y, f, s, knots=(0.0, y), power=power)


TEMPERED = [
    tempered("normal", (DATA, LATENT, POSITIVE), of_family("Normal"), log_normal_density),
    tempered(
        "normal_two_heads",
        (DATA, HEADS),
        of_family("Normal", lambda out: (part(out, 0), shifted_exp(part(out, 1)))),
        plain_heads(lambda h: h.exp() + 0.2),
        extremes=False,
    ),
    tempered(
        "normal_log_scale",
        (DATA, HEADS),
        of_family("Normal", lambda out: (part(out, 0), exp(part(out, 1)))),
        plain_heads(lambda h: h.exp()),
    ),
    tempered(
        "normal_nonlinear",
        (DATA, LATENT, POSITIVE),
        of_family("Normal", lambda f, s: (sigmoid(f), s)),
        lambda y, f, s: log_normal_density(y, f.sigmoid(), s),
    ),
    tempered(
        "log_normal",
        (POSITIVE, LATENT, POSITIVE),
        of_family("LogNormal"),
        density(distributions.LogNormal, lambda f, s: {"loc": f, "scale": s}),
    ),
    tempered("dependent_normals", (SCORES, JOINT), of_vector, log_vector, nodes=24),
    tempered(
        "multivariate_normal",
        (SCORES, JOINT),
        lambda power, y, f: likelihoods.tempered_multivariate_normal(
            power, y, f, constants(ROOT, y)
        ),
        log_multivariate,
        nodes=24,
    ),
    tempered(
        "bernoulli",
        (BINARY, LATENT),
        of_odds("Bernoulli", logits=lambda f: f),
        density(distributions.Bernoulli, lambda f: {"logits": f}),
    ),
    tempered("bernoulli_probit", (BINARY, LATENT), of_odds("Bernoulli", probs=ndtr), log_probit),
    tempered(
        "binomial",
        (COUNT, LATENT),
        lambda power, y, f: SERVED["Binomial"](power, y, 9.0, probs=sigmoid(f)),
        density(distributions.Binomial, lambda f: {"total_count": 9, "logits": f}),
    ),
    tempered(
        "negative_binomial",
        (COUNT, POSITIVE, LATENT),
        of_odds("NegativeBinomial", logits=lambda k, f: f),
        density(distributions.NegativeBinomial, lambda k, f: {"total_count": k, "logits": f}),
    ),
    tempered(
        "negative_binomial_two_heads",
        (COUNT, HEADS),
        of_family(
            "NegativeBinomial", lambda out: (exp(part(out, 0)),), logits=lambda out: part(out, 1)
        ),
        density(
            distributions.NegativeBinomial,
            lambda out: {"total_count": exp(out[..., 0]), "logits": out[..., 1]},
        ),
        extremes=False,
    ),
    tempered("geometric", (COUNT, LATENT), of_odds("Geometric", logits=lambda f: f), log_geometric),
    tempered(
        "poisson",
        (COUNT, LATENT),
        of_family("Poisson", lambda f: (times(exp(f), 2.0),)),
        density(distributions.Poisson, lambda f: {"rate": 2.0 * exp(f)}),
        extremes=False,
    ),
    tempered(
        "poisson_softplus",
        (COUNT, LATENT),
        of_family("Poisson", lambda f: (softplus(f),)),
        density(distributions.Poisson, lambda f: {"rate": softplus(f)}),
    ),
    tempered(
        "exponential",
        (POSITIVE, LATENT),
        of_family("Exponential", lambda f: (exp(f),)),
        density(distributions.Exponential, lambda f: {"rate": exp(f)}),
        extremes=False,
    ),
    tempered(
        "gamma",
        (POSITIVE, POSITIVE, LATENT),
        of_family("Gamma", lambda k, f: (k, exp(f))),
        density(distributions.Gamma, lambda k, f: {"concentration": k, "rate": exp(f)}),
        extremes=False,
    ),
    tempered(
        "gamma_poisson",
        (COUNT, POSITIVE, LATENT),
        of_family("GammaPoisson", lambda k, f: (k, exp(f))),
        density(GammaPoisson, lambda k, f: {"concentration": k, "rate": exp(f)}),
    ),
    tempered(
        "ordered_logistic",
        (SCORES, LATENT),
        lambda power, y, f: likelihoods.tempered_ordered_logistic(
            power, classes(y), f, cut_points(y)
        ),
        log_ordered,
    ),
    tempered(
        "laplace",
        (DATA, LATENT, POSITIVE),
        laplace,
        density(distributions.Laplace, lambda f, s: {"loc": f, "scale": s}),
        kinked=True,
    ),
    tempered("factor", (LATENT,), likelihoods.tempered_factor, lambda f: f),
    tempered(
        "factor_of_function",
        (LATENT,),
        lambda power, f: likelihoods.tempered_factor(power, sigmoid(f)),
        lambda f: f.sigmoid(),
    ),
]
