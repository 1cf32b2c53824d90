"""Hold the documentation and the error messages that both dropout guides share."""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import UnsupportedMoments


def bounded_site_error(name: str) -> UnsupportedMoments:
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


def nothing_to_mask_error(latent: list[str]) -> UnsupportedMoments:
    """Return the error for a model that contracts none of its latent sites with an input."""
    return UnsupportedMoments(
        "MCDropoutGuide finds no site to mask: the model contracts none of its latent sites "
        f"({', '.join(latent) or 'none'}) with an input",
        sites=latent,
        remedy="write linear maps as such (F.linear, x @ w; not (x * w).sum(-1)), or use DVIGuide "
        "or the host's AutoDelta",
    )


def not_contracted_error(name: str, contracted: list[str], latent: list[str]) -> UnsupportedMoments:
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
