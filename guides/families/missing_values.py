"""Sites with ``obs_mask=``: the frameworks split them into observed and missing values.

The part with the missing values is a latent site of all elements, which the model masks where there
is an observation. A guide has no such mask: without one its entropy has no upper bound there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.arrays import Array, stop_gradient

MISSING, OBSERVED = "_unobserved", "_observed"  # endings of the names of the two parts


def is_missing_part(name: str, sites: Mapping[str, Any]) -> bool:
    """Return whether a site has the missing values of one that is observed in part."""
    whole = name.removesuffix(MISSING)
    part = sites.get(whole + OBSERVED) if whole != name else None
    return part is not None and bool(part["is_observed"])


def entropy_of_missing(
    posteriors: Any, name: str, site: Any, guide_site: Any, entropy: Array
) -> Array:
    """Return the entropy of missing values [*batch], zero where the model masks them."""
    fn, mask = guide_site["fn"], posteriors.mask_of(site)
    is_random = hasattr(posteriors.value(site["value"]), "sites")
    if is_random and isinstance(posteriors.without_wrappers(fn), posteriors.delta):
        raise _of_a_joint_posterior(name)
    if mask is None:
        return entropy
    counted = posteriors.masked(posteriors.broadcast(entropy, fn.batch_shape), mask)
    zeros = _divergence_from_itself(posteriors, fn)
    return counted if zeros is None else counted - posteriors.masked(zeros, ~mask)


def _divergence_from_itself(posteriors: Any, fn: Any) -> Array | None:
    """Return zeros [*batch] that curve upwards around the parameters of a Normal; else None.

    Without a curvature of its own, what is hidden would be flat for Newton's method and for linear
    response, which so keep the guide's moments there.
    """
    normal = posteriors.gaussian_base(fn, with_chains=True)[0]
    if normal is None or posteriors.random_parameters(normal):
        return None
    shape = fn.batch_shape + fn.event_shape
    moments = [posteriors.broadcast(part, shape) for part in (normal.loc, normal.scale**2)]
    fixed = map(stop_gradient, moments)
    return divergences.sum_trailing(divergences.gaussian_kl(*moments, *fixed), fn.event_dim)


def _of_a_joint_posterior(name: str) -> UnsupportedMoments:
    whole = name.removesuffix(MISSING)
    return UnsupportedMoments(
        f"site '{whole}' has an obs_mask=, and the guide draws its missing values '{name}' jointly "
        "with other sites: its entropy also counts elements that are observed, and the loss would "
        "have no lower bound",
        sites=[name],
        remedy=f"use DVIGuide() or AutoNormal, or observe only what is there: "
        f"sample('{whole}', ..., obs=y[mask]) with parameters and a plate of these elements",
    )
