"""Inspect the supports of latent sites, which must not depend on other latent sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IndependentTransform
from numpyro.ops.provenance import eval_provenance

from guides.families.latent_site import varying_support_error


def is_latent(site: dict) -> bool:
    """Return whether a site of a trace, or a handler message, is a latent sample site."""
    return site["type"] == "sample" and not site["is_observed"]


def is_real(support: Any) -> bool:
    """Return whether a support is all real arrays."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real


def slope_sign(support: Any) -> Any:
    """Return -1 where the transform to a support decreases, else 1 (also if it mixes elements)."""
    transform = biject_to(support)
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    try:
        return transform.sign
    except NotImplementedError:
        return 1


def check_fixed_supports(
    model: Callable, trace: dict[str, dict], args: tuple, kwargs: dict
) -> None:
    """Raise UnsupportedMoments if a support depends on a latent site or a plate's subsample."""
    # The guide would silently keep the supports of its first run.
    names = [name for name, site in trace.items() if is_latent(site) and _has_bounds(site)]
    causes = {name: site["value"] for name, site in trace.items() if _varies(site)}
    if not names:
        return

    def supports(**values: Any) -> list:
        run = handlers.trace(handlers.substitute(model, data=values)).get_trace(*args, **kwargs)
        return [run[name]["fn"].support for name in names]

    supports_with_origins = eval_provenance(supports, **causes)
    for name, support in zip(names, supports_with_origins, strict=True):
        origins = frozenset().union(*jax.tree.leaves(support, is_leaf=_is_set))
        if origins:
            raise varying_support_error(name, ", ".join(sorted(origins)), framework="numpyro")


def _has_bounds(site: dict) -> bool:
    leaves = jax.tree.leaves(site["fn"].support)
    return any(isinstance(leaf, jax.Array) for leaf in leaves)


def _varies(site: dict) -> bool:
    if site["type"] == "plate":
        size, subsample_size = site["args"]
        return subsample_size not in (None, size)
    return is_latent(site)


def _is_set(value: Any) -> bool:
    return isinstance(value, frozenset)
