"""Handler that gives Gaussian guide sites their moments as value instead of a sample."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyro.distributions as dist
from pyro.infer.autoguide import AutoStructured
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.errors import UnsupportedMoments, calling_line
from moment_calculus.hosts.wording import MEAN_FIELD_GUIDES, not_reparameterised
from moment_calculus.numerics.rulebook import Propagation
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.latent_vector import (
    LatentVector,
    Part,
    modules_of,
    moments_or_draw,
    parts_of,
)
from pyro_moments.sites.masked import without_uses
from pyro_moments.sites.posteriors import posterior_value, without_wrappers
from pyro_moments.sites.random_watch import GeneratorWatch
from pyro_moments.sites.transformed import gaussian_base

_AUXILIARY_SUFFIXES = ("_unconstrained", "_aux")  # AutoNormal's, AutoStructured's


class MomentMessenger(Messenger):
    """Replaces the draw of every Gaussian latent site by its moments.

    It has to be the outermost handler of the guide, so that it sees the site's
    distribution after plates have expanded it. Latent vectors of Pyro's automatic guides
    are looked up in the guide.
    """

    def __init__(
        self, propagation: Propagation, sample_sites: Collection[str] = (), guide: Any = None
    ) -> None:
        super().__init__()
        self.propagation, self.sample_sites = propagation, frozenset(sample_sites)
        self.guide, self.draws = guide, GeneratorWatch()

    def _pyro_sample(self, msg: Any) -> None:
        msg["line"] = calling_line()  # for errors of its likelihood, which come later
        if msg["is_observed"] or msg["done"] or msg["value"] is not None:
            msg["value"] = without_uses(msg["value"])
            return
        if site_is_subsample(msg):
            fn = msg["fn"]
            return None if fn.subsample_size == fn.size else self.draws.site_begins(msg)
        return self.give(msg)

    def give(self, msg: Any) -> None:
        """Give a latent site its moments; point estimates and drawn sites stay unchanged."""
        name, fn = model_site(msg), msg["fn"]
        if isinstance(without_wrappers(fn), dist.Delta):
            return
        auxiliary = msg["infer"].get("is_auxiliary")
        parts = parts_of(self.guide, name) if auxiliary else ()
        if self._is_drawn(msg["name"], name, parts):
            if not fn.has_rsample:
                raise not_reparameterised(name, without_wrappers(fn), framework="Pyro")
            return self.draws.site_begins(msg)
        if auxiliary:
            _check_structure(self.guide, name)
        msg["value"] = self._vector(name, fn, parts) if parts else self._tensor(name, fn)
        msg["done"] = True

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg is self.draws.site:
            self.draws.site_ends()

    def _pyro_post_param(self, msg: Any) -> None:
        self.draws.site_ends()  # its initial value may be drawn anew in every run

    def _is_drawn(self, own: str, name: str, parts: tuple[Part, ...]) -> bool:
        if not self.sample_sites:
            return False
        if own in self.sample_sites or name in self.sample_sites:
            return True
        return bool(parts) and self.sample_sites.issuperset(part.name for part in parts)

    def _tensor(self, name: str, fn: Any, remedy: str = "") -> MomentTensor:
        return MomentTensor(posterior_value(name, fn, self.propagation, remedy))

    def _vector(self, name: str, fn: Any, parts: tuple[Part, ...]) -> Any:
        """Return the latent vector: independent parts, or one Gaussian with its covariance."""
        base, transforms = gaussian_base(fn)
        if base is not None and not transforms:
            return LatentVector(fn, parts, moments_or_draw(self.sample_sites, self.propagation))
        names = [part.name for part in parts]
        remedy = f"{MEAN_FIELD_GUIDES}, or draw all its sites: sample_sites={names}"
        if drawn := self.sample_sites.intersection(names):
            raise UnsupportedMoments(
                f"guide site '{name}' has dependent components: its sites cannot be drawn in part "
                f"({', '.join(sorted(drawn))})",
                sites=names,
                remedy=remedy,
            )
        return self._tensor(name, fn, remedy)


def model_site(msg: Any) -> str:
    """Return the name of the model's site behind a site that only the guide has."""
    name = msg["name"]
    for suffix in _AUXILIARY_SUFFIXES if msg["infer"].get("is_auxiliary") else ():
        name = name.removesuffix(suffix)
    return name


def _check_structure(guide: Any, name: str) -> None:
    """Raise UnsupportedMoments for an AutoStructured guide with the conditional 'mvn'."""
    for module in modules_of(guide):
        conditionals: Any = getattr(module, "conditionals", None)
        # This conditional multiplies a column of latents by a matrix.
        if isinstance(module, AutoStructured) and conditionals.get(name) == "mvn":
            raise UnsupportedMoments(
                f"guide site '{name}' has the conditional 'mvn' of AutoStructured: its components "
                "are dependent in a way that is not followed",
                sites=[name],
                remedy="use conditionals='normal', or AutoMultivariateNormal; or draw the site by "
                "naming it in sample_sites=",
            )
