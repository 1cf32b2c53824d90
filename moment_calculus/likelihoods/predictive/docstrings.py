"""What both front ends say of the mean of a power of a likelihood, written once."""

TEMPERED_SITE = """
For α = 1 it is the log predictive density, for α → 0 the expected log-density; in between the
energy of BB-α (Li and Gal 2017) without draws. Closed form for Normals with certain scales; a
random scale, and any other univariate distribution, is integrated; classes are approximated,
see :func:`moment_calculus.likelihoods.tempered_categorical`, or their logits drawn where
``categorical="sample"``. Where a mask excludes it is zero.

Elements of one event (``to_event``) may depend on each other; then the mean of their product
is that of a multivariate normal, if they are Normals with certain scales, and is refused else.
With ``covariance="diagonal"`` the features of one value are independent, by definition.

Args:
    name: the site, for messages.
    fn: its distribution.
    value: observation.
    alpha: α, from 0 to 1; 0 is the limit.

Raises:
    ValueError: if α is outside.
    UnsupportedMoments: if the distribution has no rule, or elements of an event may depend on
        each other and their joint density is not known; the message names cause and remedy.
"""

TEMPERED_JOINTLY = """
Sites and elements that are independent are multiplied one by one; those that depend on each other
enter by the joint normal distribution of their locations, where they are Normals with certain
scales. A scale s of a site, and a mask, is inside the power: p enters as p^{αs}, and 1/α stays
outside, so that the result tends to the sum of s E[log p] for α → 0.

Args:
    sites: of each its name, distribution, observation, and scale: a number, or an array that
        broadcasts to the batch shape, without that of subsampling; zero excludes an element; and,
        for messages, names of the plates whose elements are no data.
    alpha: α, from 0 to 1; 0 is the limit.
    datum: negative axes of the plates whose elements are data, the same for all sites; all other
        axes are of one datum. No axes: everything is one datum.

Returns:
    Array with the sizes of these axes, from left to right; 0.0 if there are no sites.

Raises:
    ValueError: if α is outside.
    UnsupportedMoments: if what is observed of a datum is dependent and not jointly normal, or the
        covariance is not known; the message names the sites, the cause and the remedy.
"""
