"""Table of families: which functions compute the expectations of which distribution.

A front end looks up the class of each name in its framework, reads the parameters, and
registers the functions on the class. Univariate distributions and random values that have
no entry here are integrated by quadrature over their own density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.hosts.predictions.marginals import Marginal
from moment_calculus.likelihoods.divergences import uniform_prior
from moment_calculus.likelihoods.location_scale import cauchy, half_cauchy, laplace, student_t
from moment_calculus.likelihoods.multivariate import (
    multivariate_normal,
    tempered_multivariate_normal,
)
from moment_calculus.likelihoods.normal import (
    half_normal,
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
)
from moment_calculus.likelihoods.predictions import (
    SMALLEST_POSITIVE,
    cauchy_marginal,
    cauchy_predictive,
    log_normal_marginal,
    log_normal_predictive,
    normal_marginal,
    student_t_marginal,
    student_t_predictive,
)
from moment_calculus.likelihoods.rates import (
    exponential,
    gamma,
    gamma_poisson,
    inverse_gamma,
    poisson,
    tempered_exponential,
    tempered_gamma,
    tempered_gamma_poisson,
    tempered_poisson,
    weibull,
)
from moment_calculus.likelihoods.trials import (
    bernoulli,
    beta,
    binomial,
    geometric,
    negative_binomial,
    tempered_bernoulli,
    tempered_binomial,
    tempered_geometric,
    tempered_negative_binomial,
)
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Value


@dataclass(frozen=True)
class Family:
    """A family of distributions with the functions that compute its expectations.

    Args:
        name: name of its class; if a framework has one class for logits and one for
            probabilities, the beginning of their names.
        expected: takes an observation and the parameters, and returns the expected log
            density; None for quadrature.
        parameters: names of the attributes that hold the parameters, in the order in
            which ``expected`` takes them, separated by spaces.
        odds: whether it also has logits or probabilities, which ``expected`` takes as
            ``logits=`` or ``probs=``.
        latent: like ``expected``, for random values, those of latent sites; None, or a
            result NotImplemented, selects quadrature.
        predictive: takes the parameters, and returns the predictive mean, the epistemic
            and the aleatoric variance, and the log predictive density; None for
            quadrature.
        marginal: takes the name of a site and the parameters, and returns the predictive
            distribution function and the like; required if ``predictive`` is given.
        tempered: takes a power a, a certain observation and the parameters, and returns
            (1/a) log E[pᵃ]; None for quadrature.
        exists: name of the parameter that decides whether predictive moments exist, the
            bound above which the mean exists, and that of the variance; None if both
            always exist.
    """

    name: str
    expected: Callable[..., Array] | None = None
    parameters: str = ""
    odds: bool = False
    latent: Callable[..., Array] | None = None
    predictive: Callable[..., tuple] | None = None
    marginal: Callable[..., Marginal] | None = None
    tempered: Callable[..., Array] | None = None
    exists: tuple[str, float, float] | None = None


def _normal_predictive(loc: Value, scale: Value) -> tuple:
    moments = normal_predictive(loc, scale)
    return *moments, lambda value: normal_log_predictive(value, loc, scale)


def _tempered_normal(power: Any, value: Array, loc: Any, scale: Any) -> Array:
    return normal_log_predictive(value, loc, scale, power=power)


def _tempered_log_normal(power: Any, value: Array, loc: Any, scale: Any) -> Array:
    logs = namespace(value).log(value)
    return normal_log_predictive(logs, loc, scale, power=power) - logs


FAMILIES = (
    Family(
        "Normal",
        normal,
        "loc scale",
        latent=normal,
        predictive=_normal_predictive,
        marginal=normal_marginal,
        tempered=_tempered_normal,
    ),
    Family(
        "LogNormal",
        log_normal,
        "loc scale",
        latent=log_normal,
        predictive=log_normal_predictive,
        marginal=log_normal_marginal,
        tempered=_tempered_log_normal,
    ),
    Family("Laplace", laplace, "loc scale", latent=laplace),
    Family(
        "StudentT",
        student_t,
        "df loc scale",
        latent=student_t,
        predictive=student_t_predictive,
        marginal=student_t_marginal,
    ),
    Family(
        "Cauchy",
        cauchy,
        "loc scale",
        latent=cauchy,
        predictive=cauchy_predictive,
        marginal=cauchy_marginal,
    ),
    Family(
        "MultivariateNormal",
        multivariate_normal,
        "loc scale_tril",
        latent=multivariate_normal,
        tempered=tempered_multivariate_normal,
    ),
    Family("Bernoulli", bernoulli, odds=True, tempered=tempered_bernoulli),
    Family("Binomial", binomial, "total_count", odds=True, tempered=tempered_binomial),
    Family(
        "NegativeBinomial",
        negative_binomial,
        "total_count",
        odds=True,
        tempered=tempered_negative_binomial,
    ),
    Family("Geometric", geometric, odds=True, tempered=tempered_geometric),
    Family("Poisson", poisson, "rate", tempered=tempered_poisson),
    Family(
        "Exponential",
        exponential,
        "rate",
        latent=exponential,
        tempered=tempered_exponential,
    ),
    Family("Gamma", gamma, "concentration rate", latent=gamma, tempered=tempered_gamma),
    Family(
        "InverseGamma",
        inverse_gamma,
        "concentration rate",
        latent=inverse_gamma,
        exists=("concentration", 1.0, 2.0),
    ),
    Family("HalfNormal", half_normal, "scale", latent=half_normal),
    Family("HalfCauchy", half_cauchy, "scale", latent=half_cauchy),
    Family("Beta", beta, "concentration1 concentration0", latent=beta),
    Family(
        "GammaPoisson",
        gamma_poisson,
        "concentration rate",
        tempered=tempered_gamma_poisson,
    ),
    Family(
        "Weibull",
        weibull,
        "scale concentration",
        latent=weibull,
        exists=(
            "concentration",
            SMALLEST_POSITIVE,
            SMALLEST_POSITIVE,
        ),  # moments are factorials of its inverse
    ),
    Family("Pareto", None, "scale alpha", exists=("alpha", 1.0, 2.0)),
    Family("Uniform", None, "low high", latent=uniform_prior),
)
