"""The sites of one run with draws, and runs in which plates have all their elements."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask
from pyro.poutine.subsample_messenger import SubsampleMessenger

from moment_calculus.criticism.model_with_draws import part_of_plate
from moment_calculus.likelihoods.families import unwrapped
from pyro_moments.prediction.predict import is_deterministic
from pyro_moments.sites.terms import WRAPPERS
from pyro_moments.sites.traces import is_factor


def is_deterministic_value(site: Any) -> bool:
    """Return whether a site is deterministic, also if a reparameterisation made it so."""
    if is_deterministic(site):
        return True
    fn = site["fn"]
    is_masked = isinstance(fn, MaskedDistribution) and fn._mask is False
    inner = unwrapped(fn, WRAPPERS)[0]
    return site["is_observed"] and is_masked and isinstance(inner, dist.Delta)


def is_predicted(site: Any) -> bool:
    """Return whether a site is predicted, hence neither deterministic nor a factor."""
    return not is_deterministic_value(site) and not is_factor(site)


def is_observed(site: Any) -> bool:
    """Return whether a site is observed, and neither deterministic nor a factor."""
    return site["is_observed"] and is_predicted(site)


def event_dim_of(site: Any) -> int:
    """Return the number of event axes of a site."""
    event = site["fn"].event_dim
    # By default all axes of a deterministic site are event axes to Pyro.
    return 0 if is_deterministic_value(site) and event == site["value"].dim() else event


def whole_value(site: Any) -> torch.Tensor:
    """Return the value of a site, expanded to the shape of its distribution."""
    value, fn = site["value"], site["fn"]
    if is_deterministic_value(site):
        return value
    shape = torch.broadcast_shapes(fn.batch_shape, value.shape[: value.dim() - fn.event_dim])
    return value.expand(shape + value.shape[value.dim() - fn.event_dim :])


def log_density(sites: Iterable[Any]) -> torch.Tensor:
    """Return the sum of the log densities of sites, with their scales and masks, in float64."""
    parts = [
        log_prob_of(site, site["scale"]).sum(dtype=torch.float64)  # float32 loses nats for 10⁵ data
        for site in sites
        if not is_deterministic(site)
    ]
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)


def log_prob_of(site: Any, scale: Any = 1.0) -> torch.Tensor:
    """Return the log density of each element of a site, scaled and masked."""
    return scale_and_mask(site["fn"].log_prob(site["value"]), scale, site["mask"])


SubsampledPlates = dict[str, tuple[int, int]]  # sizes of subsample and plate, by the plate's name


@contextlib.contextmanager
def without_subsampling() -> Iterator[SubsampledPlates]:
    """Give plates all their elements in a context, which yields those that took a subsample.

    Pyro's handlers can choose the elements of a subsample but not their number, so the
    method that decides both is replaced.
    """
    subsampled: SubsampledPlates = {}
    subsample = SubsampleMessenger._subsample

    def without_subsample(
        name: str,
        size: int | None = None,
        subsample_size: int | None = None,
        indices: Any = None,
        *device: Any,
    ) -> tuple:
        if size is None:
            return subsample(name, size, subsample_size, indices, *device)
        count = subsample_size if indices is None else len(indices)
        if count is not None and count != size:
            subsampled[name] = int(count), int(size)
        return subsample(name, size, None, None, *device)

    with mock.patch.object(SubsampleMessenger, "_subsample", staticmethod(without_subsample)):
        yield subsampled


def check_observed_whole(subsampled: SubsampledPlates, sites: Mapping[str, Any]) -> None:
    """Raise ValueError if sites are observed only at a subsample of an enlarged plate."""
    for name, site in sites.items():
        value, event = site["value"], site["fn"].event_dim
        for frame in site["cond_indep_stack"]:
            if frame.vectorized and frame.name in subsampled:
                axis = frame.dim - event
                if value.dim() < -axis or value.shape[axis] != frame.size:
                    raise part_of_plate(frame.name, *subsampled[frame.name], f"in site '{name}'")
