"""Which function serves which distribution: one line for each family, for both hosts.

A front end looks the classes of these names up in its host, reads their parameters, and registers
the function on the classes: dispatch is on types. What has no line here (a univariate distribution)
is integrated by quadrature on its own density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moment_calculus.likelihoods.location_scale import cauchy, half_cauchy, laplace, student_t
from moment_calculus.likelihoods.multivariate import multivariate_normal
from moment_calculus.likelihoods.normal import (
    half_normal,
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
)
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
from moment_calculus.values import Value


@dataclass(frozen=True)
class Family:
    """A family of distributions, with the functions that serve it.

    Args:
        name: of its class; where a host has one class for logits and one for probabilities, what
            their names begin with.
        expected: from an observation and the parameters to the expected log density.
        parameters: names of the attributes that hold the parameters, in the order in which
            ``expected`` takes them, separated by spaces.
        odds: whether it has logits or probabilities besides, which ``expected`` takes as
            ``logits=`` or ``probs=``.
        latent: whether ``expected`` takes random values too, those of latent sites; otherwise
            these are integrated by quadrature.
        predictive: from the parameters to the predictive mean, the epistemic and aleatoric
            variance, and the log predictive density; by default by quadrature.
    """

    name: str
    expected: Callable[..., Array]
    parameters: str = ""
    odds: bool = False
    latent: bool = False
    predictive: Callable[..., tuple] | None = None


def _normal_predictive(loc: Value, scale: Value) -> tuple:
    moments = normal_predictive(loc, scale)
    return *moments, lambda value: normal_log_predictive(value, loc, scale)


FAMILIES = (
    Family("Normal", normal, "loc scale", latent=True, predictive=_normal_predictive),
    Family("LogNormal", log_normal, "loc scale", latent=True),
    Family("Laplace", laplace, "loc scale", latent=True),
    Family("StudentT", student_t, "df loc scale", latent=True),
    Family("Cauchy", cauchy, "loc scale", latent=True),
    Family("MultivariateNormal", multivariate_normal, "loc scale_tril", latent=True),
    Family("Bernoulli", bernoulli, odds=True),
    Family("Binomial", binomial, "total_count", odds=True),
    Family("NegativeBinomial", negative_binomial, "total_count", odds=True),
    Family("Geometric", geometric, odds=True),
    Family("Poisson", poisson, "rate"),
    Family("Exponential", exponential, "rate", latent=True),
    Family("Gamma", gamma, "concentration rate", latent=True),
    Family("InverseGamma", inverse_gamma, "concentration rate", latent=True),
    Family("HalfNormal", half_normal, "scale", latent=True),
    Family("HalfCauchy", half_cauchy, "scale", latent=True),
    Family("Beta", beta, "concentration1 concentration0", latent=True),
    Family("GammaPoisson", gamma_poisson, "concentration rate"),
    Family("Weibull", weibull, "scale concentration", latent=True),
)
