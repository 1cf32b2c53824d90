"""What is predicted of one site of a model: moments and a log density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.numerics.arrays import Array


class PredictedSite:
    """Predictive distribution of one site, as moments and a log density.

    Args:
        name: the site.
        distribution: its distribution, with random parameters.
        mean: predictive mean.
        epistemic_variance: what of the variance comes from not knowing the weights, of the mean's
            shape.
        aleatoric_variance: what of it is noise, likewise.
        log_density: from observations to their log predictive density.
    """

    def __init__(
        self,
        name: str,
        distribution: Any,
        mean: Array,
        epistemic_variance: Array,
        aleatoric_variance: Array,
        log_density: Callable[[Array], Array],
    ) -> None:
        self.name, self.distribution, self.mean = name, distribution, mean
        self.epistemic_variance, self.aleatoric_variance = epistemic_variance, aleatoric_variance
        self._log_density = log_density

    @property
    def variance(self) -> Array:
        """Epistemic plus aleatoric variance, of the mean's shape."""
        return self.epistemic_variance + self.aleatoric_variance

    def log_prob(self, value: Array) -> Array:
        """Log predictive density log E_q[p(value)], of the distribution's batch shape.

        Args:
            value: observations.
        """
        return self._log_density(value)

    def __repr__(self) -> str:
        """Site and shape."""
        return f"{type(self).__name__}({self.name!r}, shape={tuple(self.mean.shape)})"
