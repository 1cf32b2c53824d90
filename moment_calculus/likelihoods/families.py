"""Which function serves which distribution: one line for each family, for both hosts.

A front end looks the classes of these names up in its host, reads their parameters, and registers
the function on the classes: dispatch is on types. What has no line here (a univariate distribution)
is integrated by quadrature on its own density; so are random values without a prior here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.hosts.predictions.marginals import Marginal
from moment_calculus.likelihoods.divergences import uniform_prior
from moment_calculus.likelihoods.location_scale import (
    cauchy,
    cauchy_predictive,
    half_cauchy,
    laplace,
    student_t,
    student_t_predictive,
)
from moment_calculus.likelihoods.multivariate import multivariate_normal
from moment_calculus.likelihoods.normal import (
    half_normal,
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
)
from moment_calculus.likelihoods.predictive import counts
from moment_calculus.likelihoods.predictive.cumulative import (
    cauchy_marginal,
    normal_marginal,
    student_t_marginal,
)
from moment_calculus.likelihoods.predictive.existence import LEAST
from moment_calculus.likelihoods.predictive.log_normal import (
    log_normal_marginal,
    log_normal_predictive,
)
from moment_calculus.likelihoods.predictive.vectors import tempered_multivariate_normal
from moment_calculus.likelihoods.rates import (
    exponential,
    gamma,
    gamma_poisson,
    inverse_gamma,
    poisson,
    weibull,
)
from moment_calculus.likelihoods.trials import (
    bernoulli,
    beta,
    binomial,
    geometric,
    negative_binomial,
)
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Value


@dataclass(frozen=True)
class Family:
    """A family of distributions, with the functions that serve it.

    Args:
        name: of its class; where a host has one class for logits and one for probabilities, what
            their names begin with.
        expected: from an observation and the parameters to the expected log density; by default
            by quadrature.
        parameters: names of the attributes that hold the parameters, in the order in which
            ``expected`` takes them, separated by spaces.
        odds: whether it has logits or probabilities besides, which ``expected`` takes as
            ``logits=`` or ``probs=``.
        latent: the same for random values, those of latent sites; what it does not know it returns
            NotImplemented for, and is integrated by quadrature, as it is without.
        predictive: from the parameters to the predictive mean, the epistemic and aleatoric
            variance, and the log predictive density; by default by quadrature.
        marginal: from the name of a site and the parameters to its predictive distribution
            function and the like, given if ``predictive`` is.
        tempered: from a power a, a certain observation and the parameters to (1/a) log E[pᵃ]; by
            default by quadrature.
        exists: the parameter that decides whether there are predictive moments, and what it is at
            least where there is a mean, and where there is a variance; None if there always are.
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
    Family("Bernoulli", bernoulli, odds=True, tempered=counts.tempered_bernoulli),
    Family("Binomial", binomial, "total_count", odds=True, tempered=counts.tempered_binomial),
    Family(
        "NegativeBinomial",
        negative_binomial,
        "total_count",
        odds=True,
        tempered=counts.tempered_negative_binomial,
    ),
    Family("Geometric", geometric, odds=True, tempered=counts.tempered_geometric),
    Family("Poisson", poisson, "rate", tempered=counts.tempered_poisson),
    Family(
        "Exponential",
        exponential,
        "rate",
        latent=exponential,
        tempered=counts.tempered_exponential,
    ),
    Family("Gamma", gamma, "concentration rate", latent=gamma, tempered=counts.tempered_gamma),
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
        tempered=counts.tempered_gamma_poisson,
    ),
    Family(
        "Weibull",
        weibull,
        "scale concentration",
        latent=weibull,
        exists=("concentration", LEAST, LEAST),  # whose inverse the moments are factorials of
    ),
    Family("Pareto", None, "scale alpha", exists=("alpha", 1.0, 2.0)),
    Family("Uniform", None, "low high", latent=uniform_prior),
)
