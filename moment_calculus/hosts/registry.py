"""Tables of rules that are looked up by the class of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from moment_calculus.hosts.predictions.marginals import Marginal
from moment_calculus.hosts.predictions.wording import no_predictive_moments

Key = TypeVar("Key")


def _unknown(name: str, fn: Any) -> Marginal:
    return Marginal(name, type(fn).__name__)


class Table(dict[Key, Callable]):
    """Functions by what they serve."""

    def register(self, *keys: Key) -> Callable[[Callable], Callable]:
        """Decorate the function that serves some keys.

        Args:
            keys: what it serves.

        Returns:
            The decorator.
        """

        def decorate(function: Callable) -> Callable:
            self.update(dict.fromkeys(keys, function))
            return function

        return decorate


class ClassTable(Table[type]):
    """Functions by class; an object is served by its nearest registered class."""

    def nearest(self, instance: Any) -> Callable | None:
        """Return the function of the nearest registered class of an object, if there is one.

        Args:
            instance: any object.
        """
        kind = self.kind(instance)
        return None if kind is None else self[kind]

    def kind(self, instance: Any) -> type | None:
        """The nearest registered class of an object, if there is one.

        Args:
            instance: any object.
        """
        return next((kind for kind in type(instance).__mro__ if kind in self), None)


class LikelihoodTables:
    """Expected log-probabilities and predictive moments by class of distribution.

    Args:
        host: name of the probabilistic language, see :mod:`moment_calculus.hosts.wording`.
        univariate: gives the predictive moments of any univariate distribution.
        marginal: gives, from the name of a site and such a distribution, what else is known.
        unpredicted: classes of distributions without predictive moments of their own.
    """

    def __init__(
        self,
        host: str,
        univariate: Callable[[Any], tuple],
        marginal: Callable[[str, Any], Marginal],
        unpredicted: tuple[type, ...],
    ) -> None:
        self.expected, self.predictives, self._marginals = ClassTable(), ClassTable(), ClassTable()
        self.host, self.unpredicted = host, unpredicted
        self.univariate, self._univariate_marginal = univariate, marginal

    def expected_log_prob(self, *types: type) -> Callable[[Callable], Callable]:
        """Register the expected log-probability of distribution types.

        The function is called with the distribution object, whose parameters may be random (in Pyro
        :class:`~pyro_moments.MomentTensor`, in NumPyro values of :mod:`moment_calculus.values`),
        and the site's value, which may be random too; it returns a tensor or an array of the
        distribution's batch shape.

        Args:
            types: distribution classes; subclasses are served by the nearest registered one.

        Returns:
            The decorator.
        """
        return self.expected.register(*types)

    def predictive_moments(
        self, *types: type, marginal: Callable[[str, Any], Marginal] = _unknown
    ) -> Callable[[Callable], Callable]:
        """Register the predictive moments of distribution types that are not univariate, or closer.

        The function is called with the distribution object; it returns the mean, the epistemic and
        the aleatoric variance, and a function from observations to their log predictive density,
        or, for predictions that can be drawn, the predictive distribution of the host.

        Args:
            types: distribution classes.
            marginal: from the name of a site and its distribution to what is known of the
                predictive distribution of an element; by default nothing more than the moments.

        Returns:
            The decorator.
        """
        self._marginals.update(dict.fromkeys(types, marginal))
        return self.predictives.register(*types)

    def marginal(self, name: str, fn: Any) -> Marginal:
        """What is known of the predictive distribution of an element of a site.

        Args:
            name: the site.
            fn: its distribution.
        """
        kinds = (kind for kind in type(fn).__mro__ if kind in self.predictives)
        kind = next(kinds, None)  # the class whose predictive moments serve
        make = self._univariate_marginal if kind is None else self._marginals.get(kind, _unknown)
        return make(name, fn)

    def is_predicted(self, kind: type) -> bool:
        """Whether distributions of a class have predictive moments, registered or by quadrature.

        Args:
            kind: class of distributions.
        """
        return kind in self.predictives or not issubclass(kind, self.unpredicted)

    def predictive(self, name: str, fn: Any) -> tuple:
        """The same as :meth:`predicted`, with a log density in any case."""
        *moments, law = self.predicted(name, fn)
        return *moments, getattr(law, "log_prob", law)

    def predicted(self, name: str, fn: Any) -> tuple:
        """Predictive moments of one site, see :meth:`predictive_moments`.

        Args:
            name: the site, for messages.
            fn: its distribution.

        Raises:
            UnsupportedMoments: if the distribution has none; the message lists those that have.
        """
        rule = self.predictives.nearest(fn)
        if rule is not None:
            return rule(fn)
        if fn.event_dim:
            raise no_predictive_moments(name, fn, self.predictives, host=self.host)
        try:
            return self.univariate(fn)
        except NotImplementedError:  # the host knows no mean of it
            raise no_predictive_moments(name, fn, self.predictives, host=self.host) from None
