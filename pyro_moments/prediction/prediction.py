"""Predictive distributions of one site: in closed form, and by particles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.predictions.mixtures import SampledSite, not_of_particles
from moment_calculus.predictions.site import ClosedFormSite, checked_count
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.expected import marginal, moments_and_law
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.sites.terms import WRAPPERS

CLASSES = torch.distributions.Categorical


@contextmanager
def without_gradients() -> Iterator[None]:
    """Return a context of full precision without gradients, for lazy computations."""
    with torch.no_grad(), full_precision():
        yield


class Prediction(ClosedFormSite):
    """Predictive distribution of one site, as moments, a log density, quantiles and draws.

    For classes the moments are those of the one-hot outcome: ``mean`` holds the
    probabilities, ``epistemic_variance`` what of p(1 − p) comes from not knowing the
    weights. Moments that do not exist are NaN or infinite: a Cauchy or a Student with one
    degree of freedom or less has no mean, and with two or less infinite
    ``aleatoric_variance``; it has quantiles.

    Args:
        name: the site.
        fn: its distribution, with random parameters.

    Raises:
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    framework = "Pyro"

    def __init__(self, name: str, fn: Any) -> None:
        inner = unwrapped(fn, WRAPPERS)
        base, has_classes = inner[0], isinstance(inner[0], CLASSES)
        rules = moments_and_law(name, base), marginal(name, base)
        super().__init__(name, fn, inner, *rules, has_classes, without_gradients)

    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution of every element, with torch's global generator.

        What an element depends on is drawn from the posterior, then the element from the
        likelihood: exact draws of its own predictive distribution, epistemic and aleatoric
        together. They are not joint draws of several elements: what two rows share,
        because one set of weights predicts both, is not in them. For functions of several
        rows (sums, maxima, paths) draw the weights with Pyro's ``Predictive``.

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            UnsupportedMoments: if the predictive moments are of a rule of your own that
                returns a log density, not a distribution.
        """
        count = checked_count(n)
        with without_gradients():
            return self._draws(
                has_moments(self._base),
                lambda distribution: distribution.sample((count,)),
                lambda base, shape: univariate.draw_observations(base, count, torch.Size(shape)),
            )


class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with the interface of ``Prediction``.

    A mixture with equal weights: ``mean`` is the mean of the particles' means and
    ``epistemic_variance`` their variance, ``aleatoric_variance`` the mean of the
    particles' variances. ``log_prob`` is the logarithm of the mean density, of all
    elements of an event together. Quantiles invert the mixture's own distribution
    function; ``credible_interval`` is between quantiles of the particles' means, by
    Hazen's rule, and no wider than these.

    Args:
        name: the site.
        fn: its distribution, whose batch shape begins with the particles.

    Raises:
        ValueError: if the batch shape is empty, or a parameter is random: then there are
            no particles.
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        with without_gradients():
            super().__init__(Prediction(name, fn))

    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution, with torch's global generator.

        A draw is of one particle in all its elements, and so a joint draw of several
        rows. Every particle has equally many draws, or one more than others, in random
        order.

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        with without_gradients():
            drawn = self.distribution.sample((-(-count // particles),)).flatten(0, 1)
            return drawn[torch.randperm(len(drawn), device=drawn.device)[:count]]
