"""Tables that register rules by class of object and find the rule of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from moment_calculus.hosts.predictions.marginals import Marginal
from moment_calculus.hosts.predictions.wording import no_predictive_moments

Key = TypeVar("Key")


def _unknown(name: str, fn: Any) -> Marginal:
    return Marginal(name, type(fn).__name__)


class Table(dict[Key, Callable]):
    """A dictionary from keys to functions, filled by a decorator."""

    def register(self, *keys: Key) -> Callable[[Callable], Callable]:
        """Return the decorator that registers a function for the given keys."""

        def decorate(function: Callable) -> Callable:
            self.update(dict.fromkeys(keys, function))
            return function

        return decorate


class ClassTable(Table[type]):
    """Functions by class; an object is served by its nearest registered class."""

    def nearest(self, instance: Any) -> Callable | None:
        """Return the function of an object's nearest registered class, None if there is none."""
        kind = self.kind(instance)
        return None if kind is None else self[kind]

    def kind(self, instance: Any) -> type | None:
        """Return the nearest registered class of an object, None if there is none."""
        return next((kind for kind in type(instance).__mro__ if kind in self), None)


class LikelihoodTables:
    """Expected log-probabilities and predictive moments by class of distribution."""

    def __init__(
        self,
        framework: str,  # "Pyro" or "NumPyro"
        univariate: Callable[[Any], tuple],  # predictive moments of a univariate distribution
        marginal: Callable[[str, Any], Marginal],  # of a site by name and distribution
        needs_rule: tuple[type, ...],  # classes that need a registered rule for predictions
    ) -> None:
        self.expected, self.prediction_rules, self._marginals = (
            ClassTable(),
            ClassTable(),
            ClassTable(),
        )
        self.framework, self.needs_rule = framework, needs_rule
        self.univariate, self._univariate_marginal = univariate, marginal

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
        make = self._univariate_marginal if kind is None else self._marginals.get(kind, _unknown)
        return make(name, fn)

    def is_predicted(self, kind: type) -> bool:
        """Return whether a class has predictive moments, registered or by quadrature."""
        return kind in self.prediction_rules or not issubclass(kind, self.needs_rule)

    def predictive(self, name: str, fn: Any) -> tuple:
        """Return :meth:`moments_and_law`, always with the log predictive density as last one."""
        *moments, law = self.moments_and_law(name, fn)
        return *moments, getattr(law, "log_prob", law)

    def moments_and_law(self, name: str, fn: Any) -> tuple:
        """Return the predictive moments of a site, as :meth:`predictive_moments` describes them."""
        rule = self.prediction_rules.nearest(fn)
        if rule is not None:
            return rule(fn)
        if fn.event_dim:
            raise no_predictive_moments(name, fn, self.prediction_rules, framework=self.framework)
        try:
            return self.univariate(fn)
        except NotImplementedError:  # the framework has no mean of it
            raise no_predictive_moments(
                name, fn, self.prediction_rules, framework=self.framework
            ) from None
