"""Inspect the latent sites of a model: supports, plates and initial locations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IndependentTransform
from numpyro.distributions.util import periodic_repeat
from numpyro.infer.util import helpful_support_errors
from numpyro.ops.provenance import eval_provenance

from moment_calculus.errors import UnsupportedMoments
from moment_guides.families.mean_field import LatentSite, initial_noise_scale, varying_support_error
from moment_guides.numpyro.scales import shared_noise


def is_latent(site: dict) -> bool:
    """Return whether a site of a trace, or a handler message, is a latent sample site."""
    return site["type"] == "sample" and not site["is_observed"]


def is_real(support: Any) -> bool:
    """Return whether a support is all real arrays."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real


def slope_sign(support: Any) -> Any:
    """Return -1 where the transform to a support decreases, else 1."""
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
    """Raise if a support depends on a latent site or a plate's subsample."""
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


class ModelTrace(NamedTuple):
    """One run of the model, with its latent sites at their initial values."""

    trace: dict[str, dict]

    @property
    def sites(self) -> tuple[LatentSite, ...]:
        """Return the description of every latent site."""
        return tuple(describe(site) for site in self._latent)

    def location(self, name: str) -> jax.Array:
        """Return the unconstrained initial location of a latent site."""
        return initial_location(self.trace[name], self.plate_sizes)

    @property
    def frames(self) -> dict[str, Any]:
        """Return the plates around latent sites by name."""
        return {frame.name: frame for site in self._latent for frame in site["cond_indep_stack"]}

    @property
    def plate_sizes(self) -> dict[str, int]:
        """Return the full sizes of all plates by name."""
        for site in self._latent:
            self._check_plates(site)
        inside_scan = {name: frame.size for name, frame in self.frames.items()}
        plates = {name: site for name, site in self.trace.items() if site["type"] == "plate"}
        return inside_scan | {name: site["args"][0] for name, site in plates.items()}

    def _check_plates(self, site: dict) -> None:
        """Raise for a plate in a scan whose full size is not recorded."""
        missing = [frame.name for frame in site["cond_indep_stack"] if frame.name not in self.trace]
        if missing and site["scale"] not in (None, 1):
            raise UnsupportedMoments(
                f"site '{site['name']}' inside scan is scaled by {site['scale']}, but NumPyro does "
                f"not record whether its plate '{missing[0]}' is subsampled",
                sites=[site["name"]],
                remedy="subsample outside of scan, and scale the whole scan with "
                "numpyro.handlers.scale",
            )

    @property
    def _latent(self) -> list[dict]:
        return [site for site in self.trace.values() if is_latent(site)]


def describe(site: dict) -> LatentSite:
    """Describe a latent site of a trace; raise if it is discrete or a Delta."""
    fn = site["fn"]
    if isinstance(fn, dist.Delta):
        raise ValueError(
            f"Sample site '{site['name']}' has a delta distribution; use `numpyro.deterministic` "
            "to add this value to the trace instead."
        )
    with helpful_support_errors(site):
        transform = biject_to(fn.support)
    shape = jnp.shape(site["value"])
    event_dim = fn.event_dim + len(transform.inverse_shape(shape)) - len(shape)
    plates = tuple(frame.name for frame in site["cond_indep_stack"])
    return LatentSite(site["name"], event_dim, fn.support, plates)


def initial_location(site: dict, plate_sizes: dict[str, int]) -> jax.Array:
    """Return a site's unconstrained value, repeated to the plates' full size."""
    event_dim = describe(site).event_dim
    location = biject_to(site["fn"].support).inv(site["value"])
    for frame in site["cond_indep_stack"]:
        if plate_sizes[frame.name] != frame.size:
            location = periodic_repeat(location, plate_sizes[frame.name], frame.dim - event_dim)
    return location


def on_support(base: dist.Distribution, site: LatentSite) -> dist.Distribution:
    """Transform a distribution of a site's unconstrained value to the site's support."""
    if is_real(site.support):
        return base
    return dist.TransformedDistribution(base, biject_to(site.support))


def init_to_network(site: dict | None = None) -> Any:
    """Start at the prior mean; break the symmetry of weights and spread the kinks of ReLUs.

    The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the
    symmetry between hidden units whichever axis is the input; that of vectors ½, because
    units whose kinks all start at zero keep a network nearly linear until its noise has
    absorbed what it cannot fit. Neither exceeds the prior's standard deviation. Scalars
    start at the prior mean, sites with constrained support where their unconstrained
    value is zero.

    Args:
        site: NumPyro sample site; without one the function itself is returned, as
            NumPyro's initialisers do.

    Returns:
        Initial value of the site; None for a site that is observed or discrete.

    Source: Glorot and Bengio 2010, eq. 12.
    """
    if site is None:
        return partial(init_to_network)
    fn = site["fn"]
    if site["type"] != "sample" or site["is_observed"] or fn.support.is_discrete:
        return None
    with helpful_support_errors(site):
        transform = biject_to(fn.support)
    shape = fn.shape(site["kwargs"].get("sample_shape", ()))
    unconstrained = transform.inverse_shape(shape)
    if unconstrained != shape or not is_real(fn.support):
        return transform(jnp.zeros(unconstrained))
    return _location(fn, shape) + _noise(fn, shape, site["kwargs"].get("rng_key"))


def _location(fn: Any, shape: tuple[int, ...]) -> jax.Array:
    try:
        mean = jnp.broadcast_to(fn.mean, shape)
    except (NotImplementedError, ValueError):
        return jnp.zeros(shape)
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def _noise(fn: Any, shape: tuple[int, ...], key: Any) -> jax.Array:
    limit = initial_noise_scale(fn.event_dim, shape)
    if limit == 0:
        return jnp.zeros(shape)
    shared = shared_noise(shape, key)
    noise = jax.random.normal(key, shape) if shared is None else jnp.asarray(shared)
    try:
        variance = jnp.broadcast_to(fn.variance, shape)
    except (NotImplementedError, ValueError):
        return limit * noise
    return jnp.fmin(jnp.sqrt(variance), limit) * noise
