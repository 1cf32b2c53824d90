"""The packed latent vector of Pyro's automatic guides, taken apart into one value for each site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer.autoguide import AutoContinuous

from guides.families import mean_field
from moment_calculus.hosts.wording import MEAN_FIELD_GUIDES
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.arithmetic import leaf
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.transformed import gaussian_base


class Part(NamedTuple):
    """One site's share of a latent vector, on the unconstrained space.

    Args:
        name: the site.
        start: where its components begin.
        shape: its unconstrained shape.
        event_dim: how many trailing axes make up one draw.
    """

    name: str
    start: int
    shape: torch.Size
    event_dim: int

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        """The share of this site.

        Args:
            vector: of the shape of the latent vector.
        """
        return vector[..., self.start : self.start + self.shape.numel()].reshape(self.shape)


def modules_of(guide: Any) -> Iterable[torch.nn.Module]:
    """The modules of a guide; none for a function.

    Args:
        guide: the guide, possibly inside Pyro's handlers.
    """
    unwrapped = poutine.unwrap(guide)
    return unwrapped.modules() if isinstance(unwrapped, torch.nn.Module) else ()


def parts_of(guide: Any, name: str) -> tuple[Part, ...]:
    """The sites that an automatic guide packs into one latent vector.

    Args:
        guide: the guide, possibly inside Pyro's handlers.
        name: the latent vector's site.

    Returns:
        The parts in their order; none if the guide has no such vector.
    """
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
    """A latent vector with independent components, of which only the sites' parts are live.

    It is no tensor: every part is an independent value named by its site, and whatever else a
    guide might do with the whole vector would depend on all of them in silence.

    Args:
        fn: distribution of the vector, a Normal with independent components.
        parts: the sites that it holds.
        value: gives a part its value, from its location and scale.
    """

    def __init__(
        self,
        fn: Any,
        parts: tuple[Part, ...],
        value: Callable[[Part, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        normal: Any = gaussian_base(fn)[0]
        self.shape = fn.batch_shape + fn.event_shape
        whole = [p.expand(self.shape) for p in (normal.loc, normal.scale)]
        self._values = {part.start: value(part, *map(part.of, whole)) for part in parts}

    def size(self, dim: int) -> int:
        """Size of one dimension."""
        return self.shape[dim]

    def __getitem__(self, key: Any) -> _Unshaped:
        """The part that begins where a slice of the trailing axis does."""
        return _Unshaped(self._values[key[-1].start])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Refuse operations on the whole vector."""
        raise UnsupportedMoments(
            "an operation on the latent vector of an automatic guide as a whole",
            remedy=MEAN_FIELD_GUIDES + OR_DRAW,
        )


def moments_or_draw(
    sampled: Collection[str], propagation: Propagation
) -> Callable[[Part, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Gives the parts of a latent vector their moments, or draws them.

    Args:
        sampled: names of the sites that are drawn by reparameterisation.
        propagation: how randomness flows from the others.
    """

    def value(part: Part, loc: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if part.name in sampled:
            return mean_field.sample(loc, scale, torch.randn_like(loc))
        moments = mean_field.moments(loc, scale)
        return MomentTensor(leaf(part.name, *moments, propagation, event_dim=part.event_dim))

    return value


class _Unshaped(NamedTuple):
    """A part before the guide asks for its shape, which it has already."""

    value: torch.Tensor

    def view(self, shape: torch.Size) -> torch.Tensor:
        if shape != self.value.shape:
            raise UnsupportedMoments(
                f"a site of shape {tuple(self.value.shape)} in a latent vector is broadcast to "
                f"{tuple(shape)}",
                remedy="call the guide outside plates",
            )
        return self.value
