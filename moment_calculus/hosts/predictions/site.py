"""What is predicted of one site of a model: moments, a log density, quantiles, draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from moment_calculus.hosts.predictions.marginals import Marginal
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, double, in_precision_of


class PredictedSite:
    """Predictive distribution of one site, as moments, a log density, quantiles and draws.

    Args:
        name: the site.
        distribution: its distribution, with random parameters.
        mean: predictive mean.
        epistemic_variance: what of the variance comes from not knowing the weights, of the mean's
            shape.
        aleatoric_variance: what of it is noise, likewise.
        log_density: from observations to their log predictive density.
        marginal: what else is known of the predictive distribution of an element.
        context: makes a context in which everything is computed; by default none.
    """

    def __init__(
        self,
        name: str,
        distribution: Any,
        mean: Array,
        epistemic_variance: Array,
        aleatoric_variance: Array,
        log_density: Callable[[Array], Array],
        marginal: Marginal,
        context: Callable[[], AbstractContextManager] = nullcontext,
    ) -> None:
        self.name, self.distribution, self.mean = name, distribution, mean
        self.epistemic_variance, self.aleatoric_variance = epistemic_variance, aleatoric_variance
        self._log_density, self._marginal, self._context = log_density, marginal, context

    @property
    def variance(self) -> Array:
        """Epistemic plus aleatoric variance, of the mean's shape."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def probs(self) -> Array:
        """Predictive probabilities E_q[p]: what the host calls ``probs``, its mean over q.

        Of classes [..., classes], which sum to one; of a Bernoulli the probability of a one, of a
        Binomial that of a success in one trial, both of the mean's shape. Those of other counts
        are ``log_prob``'s.

        Raises:
            UnsupportedMoments: for every other distribution.
        """
        with self._context():
            return self._marginal.probs(self.mean)

    def log_prob(self, value: Array) -> Array:
        """Log predictive density log E_q[p(value)], of the distribution's batch shape.

        Args:
            value: observations.
        """
        with self._context():
            return self._log_density(value)

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Quantiles of the predictive distribution of every element, weights and noise together.

        Closed form where the predictive distribution is Normal: a Normal likelihood with a
        Gaussian location and certain noise, a component of a multivariate Normal. Otherwise the
        predictive distribution function is inverted: an integral of the likelihood's own over the
        weights, a sum of the probabilities of counts or ordered classes. Measured error of the
        probability below a quantile: 1e-6, and 1e-9 where the weights make the logarithm of a
        scale vary by less than 1; nothing is matched by moments.

        Args:
            q: level between 0 and 1, or a sequence of levels.

        Returns:
            Array of the shape of an observation, for a sequence with the levels on a new leading
            axis. Counts and indices of classes are the smallest whose cumulative probability
            reaches the level, as floating-point numbers.

        Raises:
            ValueError: if a level is not between 0 and 1.
            UnsupportedMoments: if the distribution function of the likelihood is not known, or its
                classes have no order; there is ``sample``.
        """
        levels = np.asarray(q, np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"levels of quantiles are between 0 and 1, not {q!r}")
        with self._context():
            mean, variance = double(self.mean), double(self.variance)
            wide = np.reshape(levels, levels.shape + (1,) * len(mean.shape))
            found = self._marginal.quantile(constants(wide, mean), mean, variance)
            return in_precision_of(found, self.mean)

    def interval(self, mass: float) -> tuple[Array, Array]:
        """Central predictive interval: as much of the distribution is below it as is above.

        Args:
            mass: the probability of an observation inside it, between 0 and 1. The interval of
                counts has at least this one.

        Returns:
            Its lower and its upper end, each of the shape of an observation.

        Raises:
            ValueError: if ``mass`` is not between 0 and 1.
            UnsupportedMoments: as :meth:`quantile`.
        """
        if not 0 < mass < 1:
            raise ValueError(f"the mass of an interval is between 0 and 1, not {mass!r}")
        ends = self.quantile([(1 - mass) / 2, (1 + mass) / 2])
        return ends[0], ends[1]

    def __repr__(self) -> str:
        """Site and shape."""
        return f"{type(self).__name__}({self.name!r}, shape={tuple(self.mean.shape)})"


def checked_count(n: int) -> int:
    """The number of draws.

    Args:
        n: what the user passed.

    Raises:
        ValueError: if it is not a positive number.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"the number of draws is a positive integer, not {n!r}")
    return int(n)
