"""Replace draws of Gaussian guide sites by a primitive that stands for their moments."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import jax
import numpyro.distributions as dist
from jax.extend import core
from numpyro.primitives import Messenger

from moment_calculus.errors import not_reparameterised
from moment_calculus.numerics.rulebook import Propagation
from numpyro_moments.sites.latent_vector import LatentVectors
from numpyro_moments.sites.posteriors import posterior_value, without_wrappers

_AUXILIARY_SUFFIX = "_unconstrained"

latent_p = core.Primitive("latent")
latent_p.def_abstract_eval(lambda *_, shape, dtype, **__: jax.core.ShapedArray(shape, dtype))


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
            msg["value"] = _latent(model_site(msg), msg["fn"], msg["kwargs"].get("sample_shape"))

    def _is_drawn(self, msg: Any) -> bool:
        name = model_site(msg)
        named = bool(self.sample_sites.intersection((msg["name"], name)))
        drawn = named or self.vectors.is_drawn(msg["name"])
        if drawn and not msg["fn"].has_rsample:
            raise not_reparameterised(name, without_wrappers(msg["fn"]), framework="NumPyro")
        return drawn


def _latent(name: str, fn: Any, sample_shape: Any = ()) -> jax.Array:
    leaves, structure = jax.tree.flatten(fn)
    shape = (*(sample_shape or ()), *fn.shape())
    dtype = jax.numpy.result_type(float, *leaves)
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
        return posterior_value(site, jax.tree.unflatten(structure, leaves), propagation)

    return latent
