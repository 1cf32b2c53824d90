"""Rows of likelihoods beyond the Normal and the Categorical, each against torch's own density."""

from pyro.distributions import AsymmetricLaplace, GammaPoisson
from torch import distributions

from moment_calculus import likelihoods
from tests.cases.operand_kinds import Operand
from tests.cases.row_functions import (
    density,
    exp,
    likelihood,
    log_geometric,
    log_multivariate,
    log_ordered,
    log_probit,
    multivariate,
    ndtr,
    ordered,
    part,
    sigmoid,
    softplus,
    times,
)

DATA = Operand((3,), "certain")
POSITIVE = Operand((3,), "positive")
COUNT = Operand((3,), "count")
BINARY = Operand((3,), "binary")
LATENT = Operand((3,))
NARROW = Operand((3,), spread=0.4)
HEADS = Operand((3, 2), "correlated", spread=0.4)
SCORES = Operand((3, 3), "certain")
JOINT = Operand((3, 3), "correlated")

CONTINUOUS = [
    likelihood(
        "log_normal",
        (POSITIVE, LATENT, POSITIVE),
        likelihoods.log_normal,
        density(distributions.LogNormal, lambda f, s: {"loc": f, "scale": s}),
    ),
    likelihood(
        "log_normal_random_scale",
        (POSITIVE, HEADS),
        lambda y, out: likelihoods.log_normal(y, part(out, 0), exp(part(out, 1))),
        density(
            distributions.LogNormal, lambda out: {"loc": out[..., 0], "scale": exp(out[..., 1])}
        ),
        extremes=False,
    ),
    *(
        likelihood(
            f"log_normal_{link.__name__}_scale",
            (POSITIVE, HEADS),
            lambda y, out, link=link: likelihoods.log_normal(y, part(out, 0), link(part(out, 1))),
            density(
                distributions.LogNormal,
                lambda out, link=link: {"loc": out[..., 0], "scale": link(out[..., 1])},
            ),
            extremes=False,
        )
        for link in (softplus, sigmoid)
    ),
    likelihood(
        "normal_nonlinear_heads",
        (DATA, HEADS),
        lambda y, out: likelihoods.normal(y, sigmoid(part(out, 0)), exp(part(out, 1))),
        density(
            distributions.Normal,
            lambda out: {"loc": sigmoid(out[..., 0]), "scale": exp(out[..., 1])},
        ),
        extremes=False,
    ),
    likelihood(
        "laplace",
        (DATA, LATENT, POSITIVE),
        likelihoods.laplace,
        density(distributions.Laplace, lambda f, s: {"loc": f, "scale": s}),
        kinked=True,
    ),
    likelihood(
        "laplace_random_scale",
        (DATA, LATENT, NARROW),
        lambda y, f, h: likelihoods.laplace(y, f, exp(h)),
        density(distributions.Laplace, lambda f, h: {"loc": f, "scale": exp(h)}),
        kinked=True,
        extremes=False,
    ),
    likelihood(
        "asymmetric_laplace",
        (DATA, LATENT, NARROW, POSITIVE),
        lambda y, f, h, a: likelihoods.asymmetric_laplace(y, f, exp(h), a),
        density(AsymmetricLaplace, lambda f, h, a: {"loc": f, "scale": exp(h), "asymmetry": a}),
        kinked=True,
        extremes=False,
    ),
    likelihood(
        "student",
        (DATA, POSITIVE, LATENT, POSITIVE),
        likelihoods.student_t,
        density(distributions.StudentT, lambda df, f, s: {"df": df, "loc": f, "scale": s}),
        nodes=200,
    ),
    likelihood(
        "student_random_scale",
        (DATA, HEADS),
        lambda y, out: likelihoods.student_t(y, 3.0, part(out, 0), exp(part(out, 1))),
        density(
            distributions.StudentT,
            lambda out: {"df": 3.0, "loc": out[..., 0], "scale": exp(out[..., 1])},
        ),
        extremes=False,
    ),
    likelihood(
        "student_softplus_scale",
        (DATA, HEADS),
        lambda y, out: likelihoods.student_t(y, 3.0, part(out, 0), softplus(part(out, 1))),
        density(
            distributions.StudentT,
            lambda out: {"df": 3.0, "loc": out[..., 0], "scale": softplus(out[..., 1])},
        ),
        extremes=False,
    ),
    likelihood(
        "cauchy",
        (DATA, LATENT, POSITIVE),
        likelihoods.cauchy,
        density(distributions.Cauchy, lambda f, s: {"loc": f, "scale": s}),
        nodes=200,
    ),
    likelihood(
        "exponential",
        (POSITIVE, LATENT),
        lambda y, f: likelihoods.exponential(y, exp(f)),
        density(distributions.Exponential, lambda f: {"rate": exp(f)}),
        extremes=False,
    ),
    likelihood(
        "gamma",
        (POSITIVE, POSITIVE, LATENT),
        lambda y, k, f: likelihoods.gamma(y, k, exp(times(f, -1.0))),
        density(distributions.Gamma, lambda k, f: {"concentration": k, "rate": exp(-f)}),
        extremes=False,
    ),
    likelihood(
        "gamma_softplus",
        (POSITIVE, POSITIVE, LATENT),
        lambda y, k, f: likelihoods.gamma(y, k, softplus(f)),
        density(distributions.Gamma, lambda k, f: {"concentration": k, "rate": softplus(f)}),
        nodes=100,
    ),
    likelihood(
        "gamma_two_heads",
        (POSITIVE, HEADS),
        lambda y, out: likelihoods.gamma(y, exp(part(out, 0)), exp(part(out, 1))),
        density(
            distributions.Gamma,
            lambda out: {"concentration": exp(out[..., 0]), "rate": exp(out[..., 1])},
        ),
        extremes=False,
    ),
    likelihood(
        "weibull",
        (POSITIVE, NARROW, POSITIVE),
        lambda y, f, k: likelihoods.weibull(y, exp(f), k),
        density(distributions.Weibull, lambda f, k: {"scale": exp(f), "concentration": k}),
        extremes=False,
    ),
    likelihood("multivariate_normal", (SCORES, JOINT), multivariate, log_multivariate, nodes=12),
    likelihood(
        "multivariate_normal_independent",
        (SCORES, Operand((3, 3))),
        multivariate,
        log_multivariate,
        nodes=12,
    ),
]

COUNTS = [
    likelihood(
        "bernoulli",
        (BINARY, LATENT),
        lambda y, f: likelihoods.bernoulli(y, logits=f),
        density(distributions.Bernoulli, lambda f: {"logits": f}),
        nodes=100,
    ),
    likelihood(
        "bernoulli_sigmoid",
        (BINARY, LATENT),
        lambda y, f: likelihoods.bernoulli(y, probs=sigmoid(f)),
        density(distributions.Bernoulli, lambda f: {"logits": f}),
        nodes=100,
    ),
    likelihood(
        "bernoulli_probit",
        (BINARY, LATENT),
        lambda y, f: likelihoods.bernoulli(y, probs=ndtr(f)),
        log_probit,
    ),
    likelihood(
        "bernoulli_other_link",
        (BINARY, LATENT),
        lambda y, f: likelihoods.bernoulli(y, probs=times(sigmoid(f), 0.8, 0.1)),
        density(distributions.Bernoulli, lambda f: {"probs": 0.8 * sigmoid(f) + 0.1}),
        nodes=100,
    ),
    likelihood(
        "binomial",
        (COUNT, LATENT),
        lambda y, f: likelihoods.binomial(y, 9.0, logits=f),
        density(distributions.Binomial, lambda f: {"total_count": 9, "logits": f}),
        nodes=100,
    ),
    likelihood(
        "negative_binomial",
        (COUNT, POSITIVE, LATENT),
        lambda y, k, f: likelihoods.negative_binomial(y, k, logits=f),
        density(distributions.NegativeBinomial, lambda k, f: {"total_count": k, "logits": f}),
        nodes=100,
    ),
    likelihood(
        "negative_binomial_two_heads",
        (COUNT, HEADS),
        lambda y, out: likelihoods.negative_binomial(y, exp(part(out, 0)), logits=part(out, 1)),
        density(
            distributions.NegativeBinomial,
            lambda out: {"total_count": exp(out[..., 0]), "logits": out[..., 1]},
        ),
        extremes=False,
    ),
    likelihood(
        "geometric",
        (COUNT, LATENT),
        lambda y, f: likelihoods.geometric(y, logits=f),
        log_geometric,
        nodes=100,
    ),
    likelihood(
        "poisson",
        (COUNT, LATENT),
        lambda y, f: likelihoods.poisson(y, times(exp(f), 2.0)),
        density(distributions.Poisson, lambda f: {"rate": 2.0 * exp(f)}),
        extremes=False,
    ),
    likelihood(
        "poisson_softplus",
        (COUNT, LATENT),
        lambda y, f: likelihoods.poisson(y, softplus(f)),
        density(distributions.Poisson, lambda f: {"rate": softplus(f)}),
        nodes=100,
    ),
    likelihood(
        "gamma_poisson",
        (COUNT, POSITIVE, LATENT),
        lambda y, k, f: likelihoods.gamma_poisson(y, k, exp(f)),
        density(GammaPoisson, lambda k, f: {"concentration": k, "rate": exp(f)}),
        nodes=100,
    ),
    likelihood("ordered_logistic", (SCORES, LATENT), ordered, log_ordered, nodes=100),
]
