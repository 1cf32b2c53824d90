"""Handler that gives Gaussian guide sites their moments as value instead of a sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoContinuous, AutoStructured
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus import MEAN_FIELD_GUIDES, UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions import Moments, as_value
from moment_calculus.values import PendingWeight, Propagation
from moment_guides.families import mean_field
from pyro_moments.evaluation.refused import HOLDS, Refused
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.random_watch import GeneratorWatch
from pyro_moments.sites.terms import (
    gaussian_base,
    posterior_value,
    value_at_mean,
    without_wrappers,
)


class LatentSlice(NamedTuple):
    """One site's slice of a latent vector, on the unconstrained space."""

    name: str
    start: int  # index of its first component
    shape: torch.Size  # on the unconstrained space
    event_dim: int  # number of event axes

    def components(self, vector: torch.Tensor) -> torch.Tensor:
        """Return this site's components of a vector, in the site's shape."""
        return vector[..., self.start : self.start + self.shape.numel()].reshape(self.shape)


# Makes the value of a slice from its loc and scale.
ValueFactory = Callable[[LatentSlice, torch.Tensor, torch.Tensor], torch.Tensor]


def modules_of(guide: Any) -> Iterable[torch.nn.Module]:
    """Return the modules of a guide, possibly inside Pyro's handlers; none for a function."""
    unwrapped = poutine.unwrap(guide)
    return unwrapped.modules() if isinstance(unwrapped, torch.nn.Module) else ()


def latent_slices(guide: Any, name: str) -> tuple[LatentSlice, ...]:
    """Return the slices of an automatic guide's latent vector; none if there is no vector."""
    for module in modules_of(guide):
        if isinstance(module, AutoContinuous) and name == f"_{module._pyro_name}_latent":
            return tuple(_slices_of_guide(module))
    return ()


def _slices_of_guide(guide: AutoContinuous) -> Iterator[LatentSlice]:
    start = 0
    trace: Any = guide.prototype_trace
    for name, site in trace.iter_stochastic_nodes():
        shape = guide._unconstrained_shapes[name]
        event_dim = site["fn"].event_dim + len(shape) - len(site["value"].shape)
        yield LatentSlice(name, start, shape, event_dim)
        start += shape.numel()


class LatentVector:
    """A latent vector with independent components, accessible only site by site.

    It is not a tensor: each slice is an independent value named after its site, and an
    operation on the whole would silently make it depend on all of them.
    """

    def __init__(
        self,
        fn: Any,
        slices: tuple[LatentSlice, ...],
        make_value: ValueFactory,
    ) -> None:
        normal: Any = gaussian_base(fn)[0]
        self.shape = fn.batch_shape + fn.event_shape
        vectors = [p.expand(self.shape) for p in (normal.loc, normal.scale)]
        self._values = {
            site_slice.start: make_value(site_slice, *map(site_slice.components, vectors))
            for site_slice in slices
        }

    def size(self, dim: int) -> int:
        """Return the size of one dimension."""
        return self.shape[dim]

    def __getitem__(self, key: Any) -> _ViewableValue:
        """Return the site's value that begins where a slice of the trailing axis does."""
        return _ViewableValue(self._values[key[-1].start])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Raise UnsupportedMoments: there are no operations on the whole vector."""
        raise UnsupportedMoments(
            "an operation on the latent vector of an automatic guide as a whole",
            remedy=MEAN_FIELD_GUIDES + errors.OR_DRAW,
        )


def value_factory(sampled: Collection[str], propagation: Propagation) -> ValueFactory:
    """Return a function that gives a site its moments, or draws it if it is in ``sampled``."""

    def value(site_slice: LatentSlice, loc: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if site_slice.name in sampled:
            return mean_field.sample(loc, scale, torch.randn_like(loc))
        moments = mean_field.moments(loc, scale)
        return MomentTensor(
            ops.site_value(site_slice.name, *moments, propagation, event_dim=site_slice.event_dim)
        )

    return value


class _ViewableValue(NamedTuple):
    """A site's value; Pyro reshapes it by ``view``, although it has its shape already."""

    value: torch.Tensor

    def view(self, shape: torch.Size) -> torch.Tensor:
        if shape != self.value.shape:
            raise UnsupportedMoments(
                f"a site of shape {tuple(self.value.shape)} in a latent vector is broadcast to "
                f"{tuple(shape)}",
                remedy="call the guide outside plates",
            )
        return self.value


def without_usage_record(value: Any) -> Any:
    """Return a masked value without its usage record, for another run; others unchanged."""
    if isinstance(value, MomentTensor) and isinstance(value.value, PendingWeight):
        return MomentTensor(value.value.unused())
    return value


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
        self.guide, self.generator_watch = guide, GeneratorWatch()

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or msg["done"] or msg["value"] is not None:
            msg["line"] = errors.calling_line()  # for errors of its likelihood, which come later
            msg["value"] = without_usage_record(msg["value"])
            return
        if not site_is_subsample(msg):
            self.set_moments(msg)
        elif msg["fn"].subsample_size != msg["fn"].size:
            self.generator_watch.site_begins(msg)

    def input_value(self, name: str, moments: Moments) -> torch.Tensor:
        """Return what stands for an uncertain argument."""
        return MomentTensor(as_value(moments, name, self.propagation))

    def set_moments(self, msg: Any) -> None:
        """Set a latent site to its moments; point estimates and drawn sites stay unchanged."""
        name, fn = model_site(msg), msg["fn"]
        if isinstance(without_wrappers(fn), dist.Delta):
            return
        auxiliary = msg["infer"].get("is_auxiliary")
        slices = latent_slices(self.guide, name) if auxiliary else ()
        if self._is_drawn(msg["name"], name, slices):
            if not fn.has_rsample:
                raise errors.not_reparameterised(name, without_wrappers(fn), framework="Pyro")
            self.generator_watch.site_begins(msg)
            return
        if auxiliary:
            _check_structure(self.guide, name)
        if slices:
            msg["value"] = self._latent_vector(name, fn, slices)
        else:
            msg["value"] = self._site_value(name, fn)
        msg["done"] = True

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg is self.generator_watch.site:
            self.generator_watch.site_ends()

    def _pyro_post_param(self, msg: Any) -> None:
        self.generator_watch.parameter_ends()

    def _is_drawn(self, guide_name: str, name: str, slices: tuple[LatentSlice, ...]) -> bool:
        if not self.sample_sites:
            return False
        if guide_name in self.sample_sites or name in self.sample_sites:
            return True
        return bool(slices) and self.sample_sites.issuperset(item.name for item in slices)

    def _site_value(self, name: str, fn: Any, remedy: str = "") -> MomentTensor:
        try:
            return MomentTensor(posterior_value(name, fn, self.propagation, remedy))
        except UnsupportedMoments as refusal:
            if not HOLDS.get():
                raise
            return MomentTensor(Refused(value_at_mean(name, fn).detach(), refusal))

    def _latent_vector(self, name: str, fn: Any, slices: tuple[LatentSlice, ...]) -> Any:
        """Return a vector of independent slices, or one Gaussian with its covariance."""
        base, transforms = gaussian_base(fn)
        if base is not None and not transforms:
            return LatentVector(fn, slices, value_factory(self.sample_sites, self.propagation))
        names = [site_slice.name for site_slice in slices]
        remedy = f"{MEAN_FIELD_GUIDES}, or draw all its sites: sample_sites={names}"
        if drawn := self.sample_sites.intersection(names):
            raise UnsupportedMoments(
                f"guide site '{name}' has dependent components: its sites cannot be drawn in part "
                f"({', '.join(sorted(drawn))})",
                sites=names,
                remedy=remedy,
            )
        return self._site_value(name, fn, remedy)


def model_site(msg: Any) -> str:
    """Return the name of the model's site behind a site that only the guide has."""
    name = msg["name"]
    if not msg["infer"].get("is_auxiliary"):
        return name
    suffixes = (suffix for suffix in _AUXILIARY_SUFFIXES if name.endswith(suffix))
    return name.removesuffix(next(suffixes, ""))  # the model's own name may end like the other


def _check_structure(guide: Any, name: str) -> None:
    """Raise UnsupportedMoments for an AutoStructured guide with the conditional 'mvn'."""
    for module in modules_of(guide):
        conditionals: Any = getattr(module, "conditionals", None)
        # This conditional multiplies a column of latents by a matrix.
        if isinstance(module, AutoStructured) and conditionals.get(name) == "mvn":
            raise UnsupportedMoments(
                f"guide site '{name}' has the conditional 'mvn' of AutoStructured: its components "
                "are dependent in a way that has no moment rule",
                sites=[name],
                remedy="use conditionals='normal', or AutoMultivariateNormal; or draw the site by "
                "naming it in sample_sites=",
            )
