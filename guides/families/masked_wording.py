"""Hold the documentation and the error messages that both dropout guides share."""

from __future__ import annotations

from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments

DROPOUT_OPTIONS = """
p: probability to drop an input, as in the host's dropout layers: of all weights that the model
    contracts with an input, or of sites by name.
noise: ``"bernoulli"``, ``"gaussian"`` (of the same mean and variance), or ``"dropconnect"``, a
    Bernoulli mask for each weight.
others: what the sites are that are not masked, biases among them: ``"point"`` estimates, or
    Gaussian, ``"mean_field"``.
learn_p: whether the probabilities are parameters, one for each masked site, that begin at ``p``;
    the entropy of the masks is then part of the divergence.
temperature: of the relaxed masks that are drawn where the probabilities are learnt.
init_loc_fn: initial locations, a function of a site.
init_scale: initial standard deviations, where ``others="mean_field"``.
create_plates: optional function that makes the plates, as in {host}'s guides.
"""

DROPOUT_ERRORS = """
Noise is inverted: M is the mean of q. Which sites are weights, and on which axis their inputs are,
is found in a run of the model: a site is one if a linear map (``F.linear``, ``x @ w``, an Einstein
sum) contracts it along one axis; a kernel of a convolution is none. Every datum has a mask of its
own: the rows of the inputs are elements of the plates around what is observed (or, without a plate,
of its axes), and other rows, or more than one axis of them, are refused.

Functions of a map of at most three certain inputs are summed over all of their masks, exactly where
covariances are full; a map of more inputs, or of random ones, is taken as Gaussian.

The divergence from Normal priors N(0, λ) is ‖M‖²/(2kλ) for every masked site, k = 1 − p, but for a
constant, as a discrete q has none. Priors of which the scale is learnt or random, and others than
Normal ones, enter by E_q[log p], exactly.

A guide by dropout has no density: ELBOs by log densities refuse it. Draws of the host
(``sample_posterior``, ``Predictive``, ``sample_sites``) have one mask for all rows: each row is
right, what mixes rows is not. ``propagation="sampled"`` draws a mask for each row, the same in all
maps of one site.

Raises:
    ValueError: if an option is unknown, or ``p``, ``init_scale`` or ``temperature`` out of range.
    RuntimeError: when called without having met a model.
    UnsupportedMoments: when called, if there is no site to mask, or ``p`` names one that is none.

Source: Gal and Ghahramani 2016; Li and Gal 2017, sections 2.3 and 3.

Example:
    >>> guide = MCDropoutGuide(p=0.2)
"""


def bounded_masked_site(name: str) -> UnsupportedMoments:
    """Return the error for a site to be masked whose support is bounded."""
    return UnsupportedMoments(
        f"site '{name}' is to be masked by MCDropoutGuide, but its support is not all real numbers",
        sites=[name],
        remedy="mask sites with a prior on all real numbers: name them in MCDropoutGuide(p={...})",
    )


def masked_site_not_used(name: str) -> UnsupportedMoments:
    """Return the error for a masked site that no linear map contracts."""
    return UnsupportedMoments(
        f"the model does not contract the masked site '{name}' with an input: it has no mask",
        sites=[name],
        remedy="leave it unmasked: name the sites to mask in MCDropoutGuide(p={...})",
    )


def no_dropout_prior(name: str, prior: Any) -> UnsupportedMoments:
    """Return the error for a prior whose expected log density under dropout is not known."""
    return UnsupportedMoments(
        f"the prior of the masked site '{name}' is a {type(prior).__name__}, whose elements are "
        "dependent: its expected log density under the masks is not known",
        sites=[name],
        remedy="use a prior with independent elements, or EmpiricalBayesNormal",
    )


def no_density(site: str) -> UnsupportedMoments:
    """Return the error for asking the density of a masked weight, which does not exist."""
    return UnsupportedMoments(
        f"the masked site '{site}' of MCDropoutGuide has no density: its masks are discrete, or "
        "shared by all weights of an input",
        sites=[site],
        remedy="use DeterministicELBO(), or BBAlphaELBO() with its default energy, which take the "
        "divergence in closed form but for a constant, in place of an objective by log densities",
    )


def nothing_to_mask(latent: list[str]) -> UnsupportedMoments:
    """Return the error for a model that contracts none of its latent sites with an input."""
    return UnsupportedMoments(
        "MCDropoutGuide finds no site to mask: the model contracts none of its latent sites "
        f"({', '.join(latent) or 'none'}) with an input",
        sites=latent,
        remedy="write linear maps as such (F.linear, x @ w; not (x * w).sum(-1)), or use DVIGuide "
        "or the host's AutoDelta",
    )


def not_contracted(name: str, contracted: list[str], latent: list[str]) -> UnsupportedMoments:
    """Return the error for a site named in ``p`` that the model does not contract."""
    if name not in latent:
        cause = f"p names the site {name!r}, which the model does not have"
    else:
        cause = f"p names the site {name!r}, which the model contracts with no input"
    return UnsupportedMoments(
        f"MCDropoutGuide: {cause}; it contracts {', '.join(map(repr, contracted)) or 'none'}",
        sites=latent,
        remedy="name sites that are weights of linear maps",
    )
