"""Error messages of linear response, and the parts that its docstrings share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moment_calculus.numerics.pareto import EVEN, FEW, Weights, good_shape
from moment_calculus.refusals.errors import UnsupportedMoments

ABOUT = """
Sites are named as in the model. Standard deviations, covariances and correlations are those of
the sites on the unconstrained space, where a guide is Gaussian: of logarithms for positive
sites. ``interval``, ``sample`` and ``moments`` are on the sites' supports.

Where a scale is hardly known, its logarithm is skewed, and draws have the long tail of a
log-normal. Measured on the eight schools: deviations of μ and log τ are 0.98 and 0.97 of the
reference's, those of the schools' effects μ + τ z 1.5 by draws and 0.8 to 0.9 by ``moments``; with
``importance_weights=True`` 0.96 to 1.02 by both.
"""

ARGUMENTS = """
The moments of a mean-field guide are those of a posterior whose dependences are ignored: of
regression coefficients the standard deviations may be too small by two orders of magnitude,
while the means are right. How these means respond to a tilt of the posterior is its covariance:
with H the Hessian of the loss by the guide's parameters, and G the derivative of any expectation
by them, it is G H⁻¹ Gᵀ. It is exact where the posterior is Gaussian. Of guides with a full
covariance it equals theirs there, and adds the skewness of the posterior elsewhere.

Up to 3000 parameters H is dense. Beyond, where parameters of the elements of a plate meet
through those of a few other sites alone, H is an arrow, and everything is linear in their
number; otherwise each quantity takes a solution by conjugate gradients. Parameters of the model
that are trained, ``param`` sites, respond like latent sites.

Args:
    model: {host} model.
    guide: trained guide with Gaussian sites: ``DVIGuide``, the host's automatic Gaussian guides,
        point estimates (whose response is Laplace's approximation), or your own.
    *data: what it was trained on, arguments of model and guide.
    objective: the loss that it was trained by; by default ``DeterministicELBO()``.
    tolerance: Newton decrement in nats up to which the parameters count as an optimum: every
        mean is within sqrt(2 · decrement) corrected standard deviations of its own there.
    float64: whether to compute in double precision; so it is anyway where parameters are
        doubles.
"""

RESULT = """
Returns:
    The corrected moments: a ``LinearResponse``.

Raises:
    NotAnOptimum: if the parameters are none; the message names the sites, the Newton decrement or
        the direction of negative curvature, and the remedy.
    ValueError: if the loss is random, by draws, sampled sites or subsamples, or ``params`` are not
        those of model and guide.
    UnsupportedMoments: if a site has no Gaussian coordinates.

Warns:
    NarrowerVarianceWarning: where corrected variances are smaller than the guide's.

Source: Giordano, Broderick and Jordan 2018, Covariances, robustness, and variational Bayes.
"""


WITHOUT_NOISE = (
    "linear response takes all data at once, and an objective without draws, such as "
    "DeterministicELBO()"
)


def check_dictionary(params: Any) -> None:
    """Raise TypeError unless ``params`` is a dictionary of parameters."""
    if not isinstance(params, Mapping):
        raise TypeError(
            "params takes the trained parameters, a dictionary as of fit(model, guide, ...).params,"
            f" got {type(params).__name__}"
        )


def other_parameters(given: Iterable[str], known: Iterable[str]) -> ValueError:
    """Return the error for parameters with other names than those of model and guide."""
    listed = [", ".join(map(repr, sorted(names))) or "nothing" for names in (given, known)]
    return ValueError(
        f"params has {listed[0]}; model and guide have {listed[1]}: pass what "
        "fit(model, guide, ...).params is"
    )


def other_shape(name: str, given: Iterable[int], known: Iterable[int]) -> ValueError:
    """Return the error for a parameter with another shape than in model and guide."""
    return ValueError(
        f"parameter '{name}' has the shape {tuple(given)} in params, and {tuple(known)} in model "
        "and guide"
    )


def not_gaussian(site: str) -> UnsupportedMoments:
    """Return the error for a latent site that is no elementwise function of a Gaussian."""
    return UnsupportedMoments(
        f"the guide's site '{site}' is no elementwise function of a Gaussian: it has no "
        "unconstrained coordinates",
        sites=[site],
        remedy="use DVIGuide, or another guide whose sites are Gaussian on the unconstrained space",
    )


def check_reliable(weights: Weights, source: str, sites: Iterable[str]) -> None:
    """Raise UnsupportedMoments if importance weights of draws of ``source`` cannot be trusted."""
    if weights.is_reliable:
        return
    limit = good_shape(weights.log.shape[-1])
    raise UnsupportedMoments(
        f"the importance weights of draws of {source} cannot be trusted: their k̂ is {weights}; "
        f"they can with k̂ up to {limit:.2f} and {FEW:.0%} effective, or more than {EVEN:.0%} "
        "effective",
        sites=sites,
        remedy="leave importance_weights out for what the approximation itself says, or use other "
        "coordinates (non-centred hierarchies), a guide with covariances, or NUTS",
    )


def unknown_site(name: str, sites: Iterable[str]) -> ValueError:
    """Return the error for a name that is no site of the model."""
    return ValueError(f"{name!r} is no site of the model; there are {', '.join(map(repr, sites))}")
