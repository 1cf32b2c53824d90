"""Replace draws of Gaussian guide sites by a primitive that stands for their moments."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.autoguide import (
    AutoContinuous,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)
from numpyro.primitives import Messenger

from moment_calculus import MEAN_FIELD_GUIDES, UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions import Moments, as_value
from moment_calculus.values import Propagation
from numpyro_moments._host import new_primitive, shaped
from numpyro_moments.sites.terms import POSTERIORS, posterior_value, without_wrappers

Draw = Callable[[str, dist.Distribution], jax.Array]
_GAUSSIAN = (AutoLaplaceApproximation, AutoLowRankMultivariateNormal, AutoMultivariateNormal)


class LatentVectors:
    """The latent vectors of a guide, which are split if their sites are independent.

    Each site of ``AutoDiagonalNormal`` gets a value of its own and can be drawn by
    itself. Vectors of other guides are Gaussian, or drawn, as a whole.
    """

    def __init__(self, guide: Any, sample_sites: Collection[str]) -> None:
        self.sample_sites = frozenset(sample_sites)
        parts = list(_guides(guide))
        self.guides = [part for part in parts if isinstance(part, AutoContinuous)]
        self.joint = [part for part in parts if hasattr(part, "gaussian_parameters")]
        self.values: dict[str, dist.Delta] = {}

    def is_drawn(self, name: str) -> bool:
        """Return whether an auxiliary site is drawn as a whole; raise if that is not supported."""
        guide = self._guide_of(name)
        if guide is None or _takes_apart(guide):
            return False
        sites = guide._init_locs.keys()
        kind = type(guide).__name__
        if (drawn := self.sample_sites & sites) and drawn < sites:
            raise UnsupportedMoments(
                f"the sites of {kind} are dependent and cannot be drawn in part "
                f"({', '.join(sorted(drawn))})",
                sites=sites,
                remedy=f"draw all of them: sample_sites={sorted(sites)}, or {MEAN_FIELD_GUIDES}",
            )
        if not drawn and not isinstance(guide, _GAUSSIAN):
            raise UnsupportedMoments(
                f"{kind} is not Gaussian: its sites have no analytic moments",
                sites=sites,
                remedy=f"{MEAN_FIELD_GUIDES}, or draw its sites: sample_sites={sorted(sites)}",
            )
        if not drawn and any(_needs_independence(guide, site) for site in sites):
            raise ops.dependent_coordinates(sites)
        return bool(drawn)

    def take_apart(self, name: str, fn: Any, latent: Draw, draw: Draw) -> None:
        """Note a value for each site of a latent vector with independent components.

        ``latent`` and ``draw`` make the unconstrained value of a site from its name and
        distribution; ``draw`` is for the sites in ``sample_sites``.
        """
        guide = self._guide_of(name)
        if guide is None or not _takes_apart(guide):
            return
        normal = fn if isinstance(fn, dist.Normal) else fn.base_dist
        locs, scales = (guide._unpack_latent(part) for part in (normal.loc, normal.scale))
        for site, loc in locs.items():
            prior, normal = guide.prototype_trace[site]["fn"], dist.Normal(loc, scales[site])
            if site in self.sample_sites:
                self.values[site] = _constrained(prior, draw(site, normal))
            else:
                self.values[site] = _with_moments(prior, latent(site, normal))

    def note_images(self, name: str, vector: jax.Array) -> None:
        """Note the values of the sites of a dependent vector whose transforms mix coordinates."""
        for site, support, free in self._dependent_parts(name, vector):
            if (value := _image(biject_to(support), free)) is not None:
                self.values[site] = value

    def _dependent_parts(self, name: str, vector: jax.Array) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, the support and the unconstrained value of sites of a whole vector."""
        for guide in self.joint:
            if name == f"_{guide.prefix}_latent":
                for site, free in guide._parts(vector, guide._known_sites()):
                    yield site.name, site.support, free
        guide = self._guide_of(name)
        if guide is not None and not _takes_apart(guide):
            for site, free in guide._unpack_latent(vector).items():
                yield site, guide.prototype_trace[site]["fn"].support, free

    def _guide_of(self, name: str) -> Any:
        for guide in self.guides:
            if name in {f"{start}{guide.prefix}_{end}" for start, end in _AUXILIARY}:
                return guide
        return None


def drawn_density(site: dict) -> jax.Array | None:
    """Return the log density of a vector that a flow has drawn, at the draw; None for others."""
    auxiliary = (site["infer"] or {}).get("is_auxiliary")
    if not (auxiliary and site["name"].endswith("_latent") and site.get("intermediates")):
        return None
    # Some flows have no inverse, which the density at any other point would need.
    return site["fn"].log_prob(site["value"], intermediates=site["intermediates"])


_AUXILIARY = [("_", "latent"), ("", "z_0"), ("", "momentum")]  # the last two: AutoDAIS


def _guides(guide: Any) -> Iterator[Any]:
    """Yield a guide without NumPyro's handlers, or the guides of an AutoGuideList."""
    while not isinstance(guide, AutoGuideList) and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    if isinstance(guide, AutoGuideList):
        for part in guide:
            yield from _guides(part)
    else:
        yield guide


def _takes_apart(guide: Any) -> bool:
    return isinstance(guide, AutoDiagonalNormal)


def _constrained(prior: Any, free: jax.Array) -> dist.Delta:
    """Return the site that AutoContinuous samples for a part of its vector."""
    transform = biject_to(prior.support)
    value = transform(free)
    log_density = -transform.log_abs_det_jacobian(free, value)
    summed = np.ndim(log_density) - np.ndim(value) + prior.event_dim
    log_density = sum_rightmost(log_density, summed)
    return dist.Delta(value, log_density=log_density, event_dim=prior.event_dim)


def _needs_independence(guide: Any, site: str) -> bool:
    """Return whether moments of a site are known of independent coordinates only."""
    prior = guide.prototype_trace[site]["fn"]
    support = POSTERIORS.mixed_support([biject_to(prior.support)], prior.event_dim)
    return support is not None and support.of_independent


image_p = new_primitive("image", lambda x, *, shape, **_: shaped(shape, x.dtype))
slope_p = new_primitive("slope", lambda x, *, shape, **_: shaped(shape, x.dtype))


def _with_moments(prior: Any, free: jax.Array) -> dist.Delta:
    """Return the site of random coordinates, which its transform may mix."""
    value = _image(biject_to(prior.support), free)
    return _constrained(prior, free) if value is None else value


def _image(transform: Any, free: jax.Array) -> dist.Delta | None:
    """Return a site whose transform mixes its random coordinates; None of other transforms."""
    event_dim = transform.codomain.event_dim
    support = POSTERIORS.mixed_support([transform], event_dim)
    if support is None:
        return None
    shape = transform.forward_shape(free.shape)
    value = image_p.bind(free, support=support, shape=shape)
    slope = slope_p.bind(value, shape=shape[: len(shape) - event_dim])
    return dist.Delta(value, log_density=-slope, event_dim=event_dim)


def _slope(value: Any, **_: Any) -> Any:
    image = ops.image_of(value)
    assert image is not None, "a value that the other primitive made"
    return image.expected_log_slope


# Moment rules of a transform that mixes coordinates, and of the logarithm of its slope.
IMAGE_RULES: dict[str, Callable] = {
    "image": lambda x, *, support, **_: ops.on_support(support, x.gaussian()),
    "slope": _slope,
}
_AUXILIARY_SUFFIX = "_unconstrained"
latent_p = new_primitive("latent", lambda *_, shape, dtype, **__: shaped(shape, dtype))


class MomentMessenger(Messenger):
    """Replaces the draw of every Gaussian latent site by the primitive ``latent``.

    It has to be the outermost handler of the guide, so that it sees a site's distribution
    after plates have expanded it. Sites named in ``sample_sites`` are drawn as usual.
    """

    def __init__(self, fn: Callable, sample_sites: Collection[str] = ()) -> None:
        super().__init__(fn)
        self.sample_sites = frozenset(sample_sites)
        self.vectors = LatentVectors(fn, sample_sites)

    def process_message(self, msg: Any) -> None:
        """Give a latent site its value."""
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        if isinstance(without_wrappers(msg["fn"]), dist.Delta):
            msg["fn"] = self.vectors.values.get(msg["name"], msg["fn"])
        elif not self._is_drawn(msg):
            name = msg["name"]
            self.vectors.take_apart(name, msg["fn"], _latent, partial(_drawn, msg))
            value = _latent(model_site(msg), msg["fn"], msg["kwargs"].get("sample_shape"))
            msg["value"] = value
            self.vectors.note_images(name, value)

    def _is_drawn(self, msg: Any) -> bool:
        name = model_site(msg)
        named = bool(self.sample_sites.intersection((msg["name"], name)))
        drawn = named or self.vectors.is_drawn(msg["name"])
        if drawn and not msg["fn"].has_rsample:
            raise errors.not_reparameterised(name, without_wrappers(msg["fn"]), framework="NumPyro")
        return drawn


def _latent(name: str, fn: Any, sample_shape: Any = ()) -> jax.Array:
    leaves, structure = jax.tree.flatten(fn)
    shape = (*(sample_shape or ()), *fn.shape())
    dtype = jax.numpy.result_type(float, *leaves)
    return latent_p.bind(*leaves, site=name, structure=structure, shape=shape, dtype=dtype)


def latent_input(name: str, moments: Moments) -> jax.Array:
    """Return what stands for an uncertain argument."""
    leaves, structure = jax.tree.flatten(moments)
    shape, dtype = moments.shape, moments.mean.dtype
    return latent_p.bind(*leaves, site=name, structure=structure, shape=shape, dtype=dtype)


def _drawn(msg: Any, name: str, fn: Any) -> jax.Array:
    """Return a site's part of a drawn latent vector, with a key of its own."""
    seed = zlib.crc32(name.encode())  # Python's hash differs between processes
    return fn.rsample(jax.random.fold_in(msg["kwargs"]["rng_key"], seed))


def model_site(msg: Any) -> str:
    """Return the name by which users know a guide site: without the suffix of auxiliary ones."""
    auxiliary = (msg["infer"] or {}).get("is_auxiliary")
    return msg["name"].removesuffix(_AUXILIARY_SUFFIX) if auxiliary else msg["name"]


def latent_rule(propagation: Propagation) -> Callable:
    """Return the moment rule of the primitive ``latent``."""

    def latent(*leaves: Any, site: str, structure: Any, **_: Any) -> Any:
        source = jax.tree.unflatten(structure, leaves)
        if isinstance(source, Moments):
            return as_value(source, site, propagation)
        return posterior_value(site, source, propagation)

    return latent
