"""Split the packed latent vector of Pyro's automatic guides into one value for each site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer.autoguide import AutoContinuous

from guides.families import mean_field
from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.hosts.wording import MEAN_FIELD_GUIDES
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.arithmetic import site_value
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.transformed import gaussian_base


class Part(NamedTuple):
    """One site's share of a latent vector, on the unconstrained space."""

    name: str
    start: int  # index of its first component
    shape: torch.Size  # on the unconstrained space
    event_dim: int  # number of trailing axes that make up one draw

    def components(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the share of this site in a vector, in its shape."""
        return vector[..., self.start : self.start + self.shape.numel()].reshape(self.shape)


def modules_of(guide: Any) -> Iterable[torch.nn.Module]:
    """Return the modules of a guide, possibly inside Pyro's handlers; none for a function."""
    unwrapped = poutine.unwrap(guide)
    return unwrapped.modules() if isinstance(unwrapped, torch.nn.Module) else ()


def parts_of(guide: Any, name: str) -> tuple[Part, ...]:
    """Return the parts of an automatic guide's latent vector; none if it has no such vector."""
    for module in modules_of(guide):
        if isinstance(module, AutoContinuous) and name == f"_{module._pyro_name}_latent":
            return tuple(_parts(module))
    return ()


def _parts(guide: AutoContinuous) -> Iterator[Part]:
    start = 0
    trace: Any = guide.prototype_trace
    for name, site in trace.iter_stochastic_nodes():
        shape = guide._unconstrained_shapes[name]
        event_dim = site["fn"].event_dim + len(shape) - len(site["value"].shape)
        yield Part(name, start, shape, event_dim)
        start += shape.numel()


class LatentVector:
    """A latent vector with independent components, which is only available by site.

    It is no tensor: every part is an independent value named by its site, and an
    operation on the whole vector would depend on all of them without a warning.
    """

    def __init__(
        self,
        fn: Any,
        parts: tuple[Part, ...],
        make_value: Callable[[Part, torch.Tensor, torch.Tensor], torch.Tensor],  # from loc, scale
    ) -> None:
        normal: Any = gaussian_base(fn)[0]
        self.shape = fn.batch_shape + fn.event_shape
        vectors = [p.expand(self.shape) for p in (normal.loc, normal.scale)]
        self._values = {
            part.start: make_value(part, *map(part.components, vectors)) for part in parts
        }

    def size(self, dim: int) -> int:
        """Return the size of one dimension."""
        return self.shape[dim]

    def __getitem__(self, key: Any) -> _PartWithShape:
        """Return the part that begins where a slice of the trailing axis does."""
        return _PartWithShape(self._values[key[-1].start])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Raise UnsupportedMoments: there are no operations on the whole vector."""
        raise UnsupportedMoments(
            "an operation on the latent vector of an automatic guide as a whole",
            remedy=MEAN_FIELD_GUIDES + OR_DRAW,
        )


def moments_or_draw(
    sampled: Collection[str], propagation: Propagation
) -> Callable[[Part, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function that gives parts their moments, or draws those of ``sampled`` sites."""

    def value(part: Part, loc: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if part.name in sampled:
            return mean_field.sample(loc, scale, torch.randn_like(loc))
        moments = mean_field.moments(loc, scale)
        return MomentTensor(site_value(part.name, *moments, propagation, event_dim=part.event_dim))

    return value


class _PartWithShape(NamedTuple):
    """A part whose shape the guide is about to ask for; the part has it already."""

    value: torch.Tensor

    def view(self, shape: torch.Size) -> torch.Tensor:
        if shape != self.value.shape:
            raise UnsupportedMoments(
                f"a site of shape {tuple(self.value.shape)} in a latent vector is broadcast to "
                f"{tuple(shape)}",
                remedy="call the guide outside plates",
            )
        return self.value
