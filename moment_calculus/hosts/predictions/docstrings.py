"""What the docstrings of predictions say alike in both front ends."""

from __future__ import annotations

PREDICTED_SITE = """
For classes the moments are those of the one-hot outcome: ``mean`` holds the probabilities,
``epistemic_variance`` what of p(1 − p) comes from not knowing the weights. Moments that do not
exist are NaN or infinite: a Cauchy or a Student with one degree of freedom or less has no mean,
and with two or less infinite ``aleatoric_variance``; it has quantiles.

Args:
    name: the site.
    fn: its distribution, with random parameters.

Raises:
    UnsupportedMoments: if there are no predictive moments for the distribution.
"""

SAMPLED_SITE = """
A mixture with equal weights: ``mean`` is the mean of the particles' means and
``epistemic_variance`` their variance, ``aleatoric_variance`` the mean of the particles' variances.
``log_prob`` is the logarithm of the mean density, of all elements of an event together. Quantiles
invert the mixture's own distribution function; ``credible_interval`` is between quantiles of the
particles' means, by Hazen's rule, and no wider than these.

Args:
    name: the site.
    fn: its distribution, whose batch shape begins with the particles.

Raises:
    ValueError: if the batch shape is empty, or a parameter is random: then there are no particles.
    UnsupportedMoments: if there are no predictive moments for the distribution.
"""

DRAWN_PARTICLES = """
A draw is of one particle in all its elements, and so a joint draw of several rows. Every particle
has equally many draws, or one more than others, in random order.
"""

DRAWN = """
What an element depends on is drawn from the posterior, then the element from the likelihood:
exact draws of its own predictive distribution, epistemic and aleatoric together. They are not
joint draws of several elements: what two rows share, because one set of weights predicts both,
is not in them. For functions of several rows (sums, maxima, paths) draw the weights with
{host}'s ``Predictive``.
"""

PREDICTED_SITES = """
Returns:
    A :class:`Prediction` for every site that is not latent: ``mean``, ``epistemic_variance``
    (of the location), ``aleatoric_variance`` (of the noise), ``variance``, ``log_prob``,
    ``quantile`` and ``interval``, ``probs`` and ``variation_ratio`` of classes, ``entropy`` and
    ``mutual_information``, ``credible_interval`` of the mean, and ``sample``;
    :class:`~moment_calculus.hosts.moments.Moments` for every deterministic site.

Raises:
    UnsupportedMoments: if the model leaves the supported operations, a site's distribution
        has no predictive moments, or the model draws random numbers that belong to no site.

Source: Wu et al. 2019, eq. 9; classes by points, see ``categorical``.
"""
