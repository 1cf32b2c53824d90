"""Any univariate distribution, by quadrature over its random parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from moment_calculus.errors import BY_DRAWING, UnsupportedMoments
from moment_calculus.likelihoods.expectations import (
    expectation,
    expected_probability,
    expected_softplus,
    expected_surprisal,
    expected_value,
    log_expectation,
    moments_of_observation,
)
from moment_calculus.likelihoods.links import log_sigmoids, logit_of
from moment_calculus.likelihoods.predictions import quantile_of_mean
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.numerics.execution import NotOnHost, is_on_host
from moment_calculus.operations.elementwise.factors import positive_factors, positive_joint
from moment_calculus.predictions.marginals import (
    BinaryMarginal,
    ContinuousMarginal,
    CountMarginal,
    Marginal,
    no_entropy_given,
)
from moment_calculus.values import Gaussian, Value
from moment_calculus.values.propagation import ClassRegistry
from moment_calculus.values.spread import broadcast_shape, broadcasts_to

FRAMEWORKS = "pyro", "torch", "numpyro"  # packages of the frameworks' distributions

Question = Callable[[Any], Array]  # from a distribution with certain parameters to an array


@dataclass(frozen=True, kw_only=True)
class Univariate:
    """Expectations over random parameters of univariate distributions."""

    # From a distribution to a function of points of its random parameters, which returns
    # the distribution with these, and to the random parameters.
    parametrise: Callable[[Any], tuple[Callable[..., Any], list[Value]]]
    # From a function of arrays of a shape to one of arrays [nodes, ..., *shape].
    vectorise: Callable[[Callable[..., Array], tuple[int, ...]], Callable[..., Array]]
    certain: Callable[[Any], Any]  # the distribution if no parameter is random, else None
    support: Callable[[Any], Any]  # its ends may be random
    is_random: Callable[[Any], bool]  # of the end of a support
    is_floating: Callable[[Array], bool]
    double: Callable[[Any], Any]  # the random value, or an array in double precision, or counts
    binary: tuple[type, ...]  # classes of binary outcomes
    trials: tuple[type, ...]  # classes with a probability of success, the binary ones among them
    zero_inflated: tuple[Any, ...]  # classes with a ``gate`` and a ``base_dist``
    expanded: tuple[Any, ...]  # classes of distributions that repeat their ``base_dist``
    # From a distribution with certain parameters and whole numbers to P(y ≤ k) of counts.
    cumulatives: ClassRegistry = field(default_factory=ClassRegistry)
    # The same to log p(k), for frameworks that compile their own ``log_prob``.
    mass_functions: ClassRegistry = field(default_factory=ClassRegistry)
    # From a distribution to one with NumPy's arrays; of a framework that compiles.
    on_host: Callable[[Any], Any] = lambda fn: fn

    def expected(self, fn: Any, value: Any) -> Array:
        """Return E_q[log p(value)] by quadrature on the own ``log_prob``."""
        value = self.double(value)
        density, arguments = self._of_value(fn, value, _log_prob)
        return expectation(density, value, *arguments, knots=self._knots(fn, value))

    def zero_inflated_counts(
        self, fn: Any, value: Array, odds: Any, probability: Any, of_base: Callable[[], Array]
    ) -> Array:
        """Return E_q[log p(value)] of counts with more zeros.

        A gate that is a logistic function of a Gaussian is integrated given the Gaussian
        behind the counts.

        Args:
            fn: the distribution.
            value: counts.
            odds: the log-odds of its gate, or None.
            probability: its gate, or None.
            of_base: returns E_q[log p(value)] of its ``base_dist``.
        """
        logits = logit_of(probability) if odds is None else odds
        if not isinstance(logits, Gaussian):
            return self.expected(fn, value)
        # Without the axes of the counts: scalar parameters are integrated once.
        zeros = namespace(value).zeros_like(value if 0 in value.shape else value[(0,) * value.ndim])
        log_zero, arguments = self._of_value(fn.base_dist, zeros, _log_prob)
        rest = expected_softplus(logits, partial(log_zero, zeros), arguments, zeros.shape)
        if rest is None:
            return self.expected(fn, value)
        gate, others = map(expected_value, log_sigmoids(logits))
        # log p(0) = log(g + (1 − g) p₀) = log g + log(1 + p₀ (1 − g) / g)
        return namespace(value).where(value == 0, gate + rest, others + of_base())

    def tempered(self, fn: Any, value: Any, power: Any = 1.0) -> Array:
        """Return (1/a) log E_q[p(value)ᵃ]; a = 1 is the log predictive density."""
        value, power = self.double(value), self.double(power)
        density, arguments = self._of_value(fn, value, self._density, getattr(power, "shape", ()))
        knots = self._knots(fn, value)
        return log_expectation(density, value, *arguments, knots=knots, power=power)

    def predictive(self, fn: Any) -> tuple[Array, Array, Array, Callable]:
        """Return predictive mean, epistemic and aleatoric variance, and log predictive density."""
        if (certain := self.certain(fn)) is not None:
            zeros = namespace(certain.mean).zeros_like(certain.mean)
            return certain.mean, zeros, certain.variance, certain.log_prob
        mean, arguments = self._attribute(fn, "mean")
        variance, _ = self._attribute(fn, "variance")
        moments = moments_of_observation(mean, variance, *arguments)
        return *moments, self._log_predictive(fn)

    def marginal(self, name: str, fn: Any) -> Marginal:
        """Return the marginal of a univariate prediction: of counts, or continuous."""
        family, support = type(fn).__name__, self.support(fn)
        low, high = support_bounds(support, self.is_random)
        mean, arguments = self._attribute(fn, "mean")
        mean_quantile = partial(quantile_of_mean, mean, arguments)
        if not support.is_discrete:
            return ContinuousMarginal(
                name,
                family,
                partial(self._cumulative, fn),
                self._log_predictive(fn),
                (low, high),
                expected_entropy=partial(self._entropy, name, fn),
                mean_quantile=mean_quantile,
            )
        is_binary = isinstance(fn, self.binary)
        return (BinaryMarginal if is_binary else CountMarginal)(
            name,
            family,
            self._log_predictive(fn),
            partial(self._surprisal, fn),
            (low, 1 if is_binary else high),
            partial(self._success, fn) if isinstance(fn, self.trials) else None,
            len(arguments),
            partial(self._cumulative_of_counts, fn),
            mean_quantile=mean_quantile,
        )

    def _log_predictive(self, fn: Any) -> Callable[[Array], Array]:
        """Return the function from observations to their log predictive density."""
        certain = self.certain(fn)
        return partial(self.tempered, fn) if certain is None else certain.log_prob

    def _entropy(self, name: str, fn: Any) -> Array:
        """Return E_q of the distribution's own entropy."""
        entropy, arguments = self._answer(fn, lambda certain: certain.entropy())
        try:
            return expectation(entropy, *arguments)
        except NotImplementedError:
            raise no_entropy_given(name, type(fn).__name__) from None

    def _surprisal(self, fn: Any, value: Array) -> Array:
        """Return E_q[−p log p] of the probabilities of counts."""
        density, arguments = self._of_value(fn, value, self._density)
        return expected_surprisal(density, value, *arguments)

    def _success(self, fn: Any) -> Array:
        """Return E_q of the probability of a success."""
        probability, arguments = self._attribute(fn, "probs")
        return expectation(probability, *arguments)

    def _cumulative(self, fn: Any, value: Array) -> Array:
        """Return P(y ≤ value), by the distribution's own function."""
        cumulative, arguments = self._of_value(fn, value, _cdf)
        knots = self._knots(fn, self.double(value))
        return expected_probability(cumulative, value, *arguments, knots=knots)

    def _cumulative_of_counts(self, fn: Any, value: Array) -> Array:
        """Return P(y ≤ value) of whole numbers; NotImplementedError without a formula."""
        cumulative, arguments = self._of_value(fn, value, self._up_to)
        return expected_probability(cumulative, value, *arguments)

    def _up_to(self, certain: Any, value: Array) -> Array:
        if isinstance(certain, self.expanded):
            return self._up_to(certain.base_dist, value)
        if isinstance(certain, self.zero_inflated):
            return certain.gate + (1 - certain.gate) * self._up_to(certain.base_dist, value)
        rule = self._rule(self.cumulatives, certain)
        if rule is None:
            raise NotImplementedError
        return rule(certain, value)

    def _density(self, certain: Any, value: Array) -> Array:
        return self._log_mass(certain, value) if is_on_host() else _log_prob(certain, value)

    def _log_mass(self, certain: Any, value: Array) -> Array:
        """Return log p(value) of counts by a formula; NotOnHost without one."""
        if isinstance(certain, self.expanded):
            return self._log_mass(certain.base_dist, value)
        if isinstance(certain, self.zero_inflated):
            log_p, xp = self._log_mass(certain.base_dist, value), namespace(value)
            more = xp.log(certain.gate + (1 - certain.gate) * xp.exp(log_p))
            return xp.where(value == 0, more, xp.log1p(-certain.gate) + log_p)
        rule = self._rule(self.mass_functions, certain)
        if rule is None:
            raise NotOnHost
        results = rule(certain, value)
        return fill_outside_support(certain.support, value, results, -math.inf, -math.inf)

    def _rule(self, rules: ClassRegistry, certain: Any) -> Callable[..., Array] | None:
        # A subclass of the user's may have other probabilities than its parent.
        is_own = type(certain).__module__.partition(".")[0] in FRAMEWORKS
        return rules.function_for(certain) if is_own else None

    def _attribute(self, fn: Any, name: str) -> tuple[Callable[..., Array], list[Value]]:
        """Return an attribute as a function of the random parameters, and these."""
        return self._answer(fn, lambda certain: getattr(certain, name))

    def _answer(self, fn: Any, question: Question) -> tuple[Callable[..., Array], list[Value]]:
        """Return the answer as a function of the random parameters, and these."""
        distribution_at, arguments = self.parametrise(fn)
        shapes = [argument.shape for argument in arguments] or [tuple(fn.batch_shape)]
        shape = broadcast_shape(*shapes)
        return self.vectorise(lambda *at: question(distribution_at(*at)), shape), arguments

    def _of_value(
        self, fn: Any, value: Any, question: Callable[[Any, Array], Array], *shapes: tuple[int, ...]
    ) -> tuple[Callable[..., Array], list[Value]]:
        """Return a function of an observation and the random parameters, and these."""
        distribution_at, arguments = self.parametrise(fn)
        shapes = tuple(value.shape), *shapes, *(argument.shape for argument in arguments)

        def answer(value: Array, *at: Array) -> Array:
            certain = distribution_at(*at)
            return question(self.on_host(certain) if is_on_host() else certain, value)

        if not arguments or is_on_host():  # all is certain: there are no nodes; NumPy broadcasts
            return answer, arguments
        return self.vectorise(answer, broadcast_shape(*shapes)), arguments

    def _knots(self, fn: Any, value: Any) -> tuple[Any, ...]:
        """Return where links bend (zero), and densities (the observation)."""
        is_certain = not hasattr(value, "gaussian") and self.is_floating(value)
        return (0.0, value) if is_certain and hasattr(fn, "loc") else (0.0,)


def _log_prob(certain: Any, value: Array) -> Array:
    results = certain.log_prob(value)
    return fill_outside_support(certain.support, value, results, -math.inf, -math.inf)


def _cdf(certain: Any, value: Array) -> Array:
    return fill_outside_support(certain.support, value, certain.cdf(value), 0.0, 1.0)


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Raise unless the random parameters broadcast to a univariate batch."""
    fits = all(broadcasts_to(argument.shape, fn.batch_shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_unconstrained(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],  # name, value and constraint
    is_real: Callable[[Any], bool],  # whether a constraint allows all real numbers
    *,
    link_names: str,  # names of functions with confined values, for the message
) -> None:
    """Raise if a parameter is Gaussian although it has a constraint."""
    # A Gaussian leaves every interval: mass outside would be integrated without a
    # warning.
    for name, value, constraint in parameters:
        if not isinstance(value, Gaussian) or is_real(constraint):
            continue
        if positive_factors(value) is None and positive_joint(value) is None:
            raise gaussian_with_constraint(
                name, fn, constraint, sites=value.sites, link_names=link_names
            )


def fill_outside_support(support: Any, value: Any, results: Any, below: float, above: float) -> Any:
    """Return results, replaced where the value is below or above the support."""
    # Frameworks do not check this: a density formula goes on beyond an end that is a
    # parameter.
    low, high = support_bounds(support, lambda end: False)
    xp = namespace(results)
    return xp.where(value < low, below, xp.where(value > high, above, results))


def support_bounds(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the ends of a support, infinite where an end is random or missing."""
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    candidates = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in candidates)
    if support.is_discrete and low == -math.inf:  # a boolean support has no ends
        low = 0
    return low, high


def not_univariate(fn: Any, sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for random parameters of no univariate batch."""
    return UnsupportedMoments(
        f"the random parameters of a {type(fn).__name__} are not those of a univariate "
        "distribution, one for each element of its batch",
        sites=sites,
        remedy=f"draw the latent sites by {BY_DRAWING}",
    )


def gaussian_with_constraint(
    parameter: str, fn: Any, constraint: Any, *, sites: Iterable[str], link_names: str
) -> UnsupportedMoments:
    """Return the error for a Gaussian as a parameter that must stay in an interval."""
    return UnsupportedMoments(
        f"the parameter {parameter} of {type(fn).__name__} is a Gaussian value, or matched by "
        f"one, which is not confined to {constraint}",
        sites=sites,
        remedy=f"make it a function of one Gaussian with such values, e.g. {link_names}, or draw "
        "its sites by naming them in sample_sites=",
    )
