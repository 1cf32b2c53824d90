"""Table of families: which functions compute the expectations of which distribution.

A front end looks up the class of each name in its framework, reads the parameters, and
registers the functions on the class. Univariate distributions and random values that have
no entry here are integrated by quadrature over their own density.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import BY_DRAWING, UnsupportedMoments
from moment_calculus.likelihoods.cumulative import (
    binomial_up_to,
    gamma_poisson_up_to,
    geometric_up_to,
    negative_binomial_up_to,
    poisson_up_to,
)
from moment_calculus.likelihoods.divergences import uniform_prior
from moment_calculus.likelihoods.expectations import expected_value, tempered_factor
from moment_calculus.likelihoods.location_scale import (
    asymmetric_laplace,
    asymmetric_laplace_quantile,
    cauchy,
    half_cauchy,
    half_normal,
    laplace,
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
    student_t,
)
from moment_calculus.likelihoods.multivariate import (
    dirichlet,
    lkj_cholesky,
    multivariate_normal,
    random_walk,
    tempered_multivariate_normal,
    zero_sum_normal,
)
from moment_calculus.likelihoods.predictions import (
    SMALLEST_POSITIVE,
    cauchy_marginal,
    cauchy_predictive,
    infinite_where_undefined,
    log_normal_marginal,
    log_normal_predictive,
    normal_marginal,
    student_t_marginal,
    student_t_predictive,
)
from moment_calculus.likelihoods.trials import (
    bernoulli,
    beta,
    beta_binomial,
    binomial,
    exponential,
    gamma,
    gamma_poisson,
    geometric,
    inverse_gamma,
    negative_binomial,
    poisson,
    tempered_bernoulli,
    tempered_binomial,
    tempered_exponential,
    tempered_gamma,
    tempered_gamma_poisson,
    tempered_geometric,
    tempered_negative_binomial,
    tempered_poisson,
    weibull,
)
from moment_calculus.likelihoods.univariate import Univariate
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.predictions.marginals import Marginal
from moment_calculus.values import Value
from moment_calculus.values.propagation import ClassRegistry


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
        cumulative: of counts: takes whole numbers and certain parameters, and returns the
            probabilities of counts up to them; None for sums of probabilities.
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
    cumulative: Callable[..., Array] | None = None


def _normal_predictive(loc: Value, scale: Value) -> tuple:
    moments = normal_predictive(loc, scale)
    return *moments, lambda value: normal_log_predictive(value, loc, scale)


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
        tempered=lambda power, value, loc, scale: normal_log_predictive(
            value, loc, scale, power=power
        ),
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
    Family("AsymmetricLaplace", asymmetric_laplace, "loc scale asymmetry"),
    Family("AsymmetricLaplaceQuantile", asymmetric_laplace_quantile, "loc scale quantile"),
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
    Family(
        "Binomial",
        binomial,
        "total_count",
        odds=True,
        tempered=tempered_binomial,
        cumulative=binomial_up_to,
    ),
    Family(
        "NegativeBinomial",
        negative_binomial,
        "total_count",
        odds=True,
        tempered=tempered_negative_binomial,
        cumulative=negative_binomial_up_to,
    ),
    Family(
        "Geometric",
        geometric,
        odds=True,
        tempered=tempered_geometric,
        cumulative=geometric_up_to,
    ),
    Family("Poisson", poisson, "rate", tempered=tempered_poisson, cumulative=poisson_up_to),
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
    Family("BetaBinomial", beta_binomial, "concentration1 concentration0 total_count"),
    Family(
        "GammaPoisson",
        gamma_poisson,
        "concentration rate",
        tempered=tempered_gamma_poisson,
        cumulative=gamma_poisson_up_to,
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
    Family("Dirichlet", dirichlet, "concentration", latent=dirichlet),
    Family("LKJCholesky", lkj_cholesky, "concentration", latent=lkj_cholesky),
    Family("GaussianRandomWalk", random_walk, "scale", latent=random_walk),
    Family("ZeroSumNormal", zero_sum_normal, "scale event_shape", latent=zero_sum_normal),
)


def _unknown(name: str, fn: Any) -> Marginal:
    return Marginal(name, type(fn).__name__)


@dataclass(frozen=True)
class _Rules:
    """The functions of a family for the distributions of a framework."""

    family: Family
    tables: LikelihoodTables
    read: Callable[[Family, Any], tuple[list[Any], dict[str, Any]]]

    def expected(self, fn: Any, value: Any) -> Array:
        plain = self.tables.unwrap(value)
        rule = self.family.latent if hasattr(plain, "gaussian") else self.family.expected
        result = NotImplemented
        if rule is not None:
            parameters, odds = self.read(self.family, fn)
            result = rule(plain, *parameters, **odds)
        return self.tables.univariate.expected(fn, value) if result is NotImplemented else result

    def tempered(self, fn: Any, value: Any, power: Any) -> Array:
        assert self.family.tempered is not None, "a family with means of powers of its own"
        plain = self.tables.unwrap(value)
        if hasattr(plain, "gaussian"):
            return self.tables.univariate.tempered(fn, value, power)
        parameters, odds = self.read(self.family, fn)
        return self.family.tempered(power, plain, *parameters, **odds)

    def predictive(self, fn: Any) -> tuple:
        assert self.family.predictive is not None, "a family with predictive moments of its own"
        return self.family.predictive(*self.read(self.family, fn)[0])

    def marginal(self, name: str, fn: Any) -> Marginal:
        assert self.family.marginal is not None, "a family with predictive moments of its own"
        return self.family.marginal(name, *self.read(self.family, fn)[0])

    def cumulative(self, fn: Any, value: Array) -> Array:
        assert self.family.cumulative is not None, "a family of counts"
        parameters, odds = self.read(self.family, fn)
        return self.family.cumulative(value, *parameters, **odds)

    def existing(self, fn: Any) -> tuple:
        """Return predictive moments by quadrature, infinite where they do not exist."""
        assert self.family.exists is not None, "a family whose moments may not exist"
        name, *limits = self.family.exists
        *moments, law = self.tables.univariate.predictive(fn)
        parameter = self.tables.unwrap(getattr(fn, name))
        return *infinite_where_undefined(moments, parameter, limits), law


class LikelihoodTables:
    """Expected log-probabilities and predictive moments by class of distribution."""

    def __init__(
        self,
        framework: str,  # "Pyro" or "NumPyro"
        univariate: Univariate,
        needs_rule: tuple[type, ...],  # classes that need a registered rule for predictions
        unwrap: Callable[[Any], Any] = lambda part: part,  # from the framework's values to ours
    ) -> None:
        self.expected, self.prediction_rules = ClassRegistry(), ClassRegistry()
        # Functions of the distribution, the observation and a power a, which return (1/a)
        # log E[pᵃ] of the batch shape. Each is for a class that also has an expected
        # log-probability.
        self.tempered, self._marginals = ClassRegistry(), ClassRegistry()
        self.framework, self.needs_rule = framework, needs_rule
        self.univariate, self.unwrap = univariate, unwrap

    def serve(
        self,
        family: Family,
        kinds: Sequence[type],
        # From the family and a distribution to its parameters, and to its odds by name.
        read: Callable[[Family, Any], tuple[list[Any], dict[str, Any]]],
    ) -> None:
        """Register the functions of a family for classes of the framework."""
        rules = _Rules(family, self, read)
        self.expected.register(*kinds)(rules.expected)
        if family.expected is not None:  # of certain parameters it is log p
            self.univariate.mass_functions.register(*kinds)(rules.expected)
        if family.tempered is not None:
            self.tempered.register(*kinds)(rules.tempered)
        if family.cumulative is not None:
            self.univariate.cumulatives.register(*kinds)(rules.cumulative)
        if family.predictive is not None:
            self.predictive_moments(*kinds, marginal=rules.marginal)(rules.predictive)
        if family.exists is not None:
            self.predictive_moments(*kinds, marginal=self.univariate.marginal)(rules.existing)

    def rule_of_power(self, name: str, fn: Any, sites: Iterable[str]) -> Callable[..., Array]:
        """Return the rule for means of powers: of the class, or quadrature."""
        kind = self.expected.registered_class(fn)
        rule = None if kind is None else self.tempered.get(kind)
        if rule is None and fn.event_dim:
            raise no_tempered_log_prob(
                name, fn, self.tempered, framework=self.framework, sites=sites
            )
        return rule or self.univariate.tempered

    def serve_factor(self, kind: type, attribute: str) -> None:
        """Register a class whose log-density is an attribute: a factor, a point."""
        self.expected.register(kind)(
            lambda fn, value: expected_value(self.unwrap(getattr(fn, attribute)))
        )
        self.tempered.register(kind)(
            lambda fn, value, power: tempered_factor(power, self.unwrap(getattr(fn, attribute)))
        )

    def expected_log_prob(self, *types: type) -> Callable[[Callable], Callable]:
        """Register the expected log-probability of distribution types.

        The function is called with the distribution object, whose parameters may be
        random (in Pyro :class:`~pyro_moments.MomentTensor`, in NumPyro values of
        :mod:`moment_calculus.values`), and the site's value, which may be random too; it
        returns a tensor or an array of the distribution's batch shape.

        Args:
            types: distribution classes; subclasses are served by the nearest registered
                one.

        Returns:
            The decorator.
        """
        return self.expected.register(*types)

    def predictive_moments(
        self, *types: type, marginal: Callable[[str, Any], Marginal] = _unknown
    ) -> Callable[[Callable], Callable]:
        """Register predictive moments of distributions, in place of quadrature for univariate ones.

        The function is called with the distribution object; it returns the mean, the
        epistemic and the aleatoric variance, and a function from observations to their
        log predictive density, or, for predictions that can be drawn, the framework's
        predictive distribution.

        Args:
            types: distribution classes.
            marginal: from the name of a site and its distribution to what is known of the
                predictive distribution of an element; by default only the moments are
                known.

        Returns:
            The decorator.
        """
        self._marginals.update(dict.fromkeys(types, marginal))
        return self.prediction_rules.register(*types)

    def marginal(self, name: str, fn: Any) -> Marginal:
        """Return what is known of the predictive distribution of a site's elements."""
        kinds = (kind for kind in type(fn).__mro__ if kind in self.prediction_rules)
        kind = next(kinds, None)  # the nearest class with predictive moments
        make = self.univariate.marginal if kind is None else self._marginals.get(kind, _unknown)
        return make(name, fn)

    def is_predicted(self, kind: type) -> bool:
        """Return whether a class has predictive moments, registered or by quadrature."""
        return kind in self.prediction_rules or not issubclass(kind, self.needs_rule)

    def predictive(self, name: str, fn: Any) -> tuple:
        """Return :meth:`moments_and_law` with the log predictive density at the end."""
        *moments, law = self.moments_and_law(name, fn)
        return *moments, getattr(law, "log_prob", law)

    def moments_and_law(self, name: str, fn: Any) -> tuple:
        """Return the predictive moments of a site; see :meth:`predictive_moments`."""
        rule = self.prediction_rules.function_for(fn)
        if rule is not None:
            return rule(fn)
        if fn.event_dim:
            raise no_predictive_moments(name, fn, self.prediction_rules, framework=self.framework)
        try:
            return self.univariate.predictive(fn)
        except NotImplementedError:  # the framework has no mean of it
            raise no_predictive_moments(
                name, fn, self.prediction_rules, framework=self.framework
            ) from None


def no_predictive_moments(
    name: str, fn: Any, known: Iterable[type], *, framework: str
) -> UnsupportedMoments:
    """Return the error for a distribution without predictive moments."""
    return UnsupportedMoments(
        f"site '{name}': no predictive moments for {type(fn).__name__}; there are some "
        f"for {', '.join(kind.__name__ for kind in known)}, and for every univariate "
        "distribution of which the host knows the mean",
        remedy=predictive_remedy(framework),
    )


def predictive_remedy(framework: str) -> str:
    """Return the remedy for a distribution without predictive moments."""
    return (
        f"register some with @{framework.lower()}_moments.predictive_moments, or use "
        f"{framework.lower()}.infer.Predictive with the guide to sample predictions"
    )


def no_expected_log_prob(
    name: str, fn: Any, known: Iterable[type], *, framework: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """Return the error for a distribution without an expected log-probability."""
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': no expected log-probability for {type(fn).__name__} with random "
        f"parameters or value; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy=f"register one with @{framework.lower()}_moments.expected_log_prob, or draw the "
        f"latent sites by {BY_DRAWING}",
    )


def no_tempered_log_prob(
    name: str, fn: Any, known: Iterable[type], *, framework: str, sites: Iterable[str] = ()
) -> UnsupportedMoments:
    """Return the error for a distribution without a rule for means of powers."""
    names = sorted({kind.__name__ for kind in known})
    return UnsupportedMoments(
        f"site '{name}': the mean of a power of the density of a {type(fn).__name__} with random "
        f"parameters has no rule; there is one for {', '.join(names)}, and for every univariate "
        "distribution",
        sites=sites,
        remedy="use propagation='sampled', or the expected log-probability, "
        f"{framework.lower()}_moments.DeterministicELBO",
    )


@functools.cache
def _is_one_of(kind: type, wrappers: tuple[Any, ...]) -> bool:
    """Return whether a class is a wrapper; cached, because isinstance of the frameworks is slow."""
    return issubclass(kind, wrappers)


def unwrapped(fn: Any, wrappers: tuple[Any, ...]) -> tuple[Any, int]:
    """Return the distribution inside wrappers, and how many axes they sum over."""
    inner, summed = fn, 0
    kind: Any = type(fn)
    while _is_one_of(kind, wrappers):
        summed += getattr(inner, "reinterpreted_batch_ndims", 0)
        inner = inner.base_dist
        kind = type(inner)
    return inner, summed
