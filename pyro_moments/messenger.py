"""Gives Gaussian guide sites their value as moments instead of a sample."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from guides.families import mean_field
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations import leaf
from moment_calculus.rulebooks import Propagation
from moment_calculus.values import Deferred, Value
from pyro_moments.tensor import MomentTensor
from pyro_moments.transformed import gaussian_base, transformed

SAMPLE_REMEDY = "name it in DeterministicELBO(sample_sites=...) to draw it by reparameterisation"


class MomentMessenger(Messenger):
    """Replaces the draw of every Gaussian latent site by its moments.

    It has to be the outermost handler of the guide, so that it sees the site's distribution after
    plates have expanded it.

    Args:
        propagation: how randomness flows from the sites.
        sample_sites: names of the sites that are drawn as usual.
    """

    def __init__(self, propagation: Propagation, sample_sites: Collection[str] = ()) -> None:
        super().__init__()
        self.propagation, self.sample_sites = propagation, frozenset(sample_sites)

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or msg["done"] or msg["value"] is not None or site_is_subsample(msg):
            return
        if msg["name"] in self.sample_sites or isinstance(msg["fn"], dist.Delta):
            return
        msg["value"] = MomentTensor(self._moments(msg["name"], msg["fn"]))
        msg["done"] = True

    def _moments(self, name: str, fn: Any) -> Value:
        base, transforms = gaussian_base(fn)
        if base is None:
            raise UnsupportedMoments(
                f"guide site '{name}' has a {_describe(fn)} posterior; analytic moments need "
                "independent Normal components, or elementwise transforms of them",
                sites=[name],
                remedy=SAMPLE_REMEDY,
            )
        if any(isinstance(p, MomentTensor) for p in (base.loc, base.scale)):
            raise UnsupportedMoments(
                f"guide site '{name}' depends on another latent site: the guide is not mean-field",
                sites=[name],
                remedy="make the parameters of every guide site certain",
            )
        shape = fn.batch_shape + fn.event_shape
        mean, variance = (m.expand(shape) for m in mean_field.moments(base.loc, base.scale))
        gaussian = leaf(name, mean, variance, self.propagation, event_dim=fn.event_dim)
        return Deferred(gaussian, transformed(transforms)) if transforms else gaussian


def _describe(fn: Any) -> str:
    while isinstance(fn, torch.distributions.Independent):
        fn = fn.base_dist
    return type(fn).__name__
