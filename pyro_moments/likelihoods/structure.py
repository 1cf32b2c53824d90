"""Find random tensors inside a distribution object, and copy it with others in their place.

A copy needs no constructor, so that it also replaces what a distribution derives from its
parameters: a reciprocal, a transform, another distribution.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributions import Distribution, constraints
from torch.distributions.transforms import Transform

from moment_calculus.likelihoods import families
from moment_calculus.operations import catalogue as ops
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.evaluation.wrappers import WRAPPERS

# Types that contain no random tensor.
_PLAIN = {torch.Tensor, torch.nn.Parameter, torch.Size, bool, type(None)}


def random_tensors(fn: Any) -> list[MomentTensor]:
    """Return all random tensors inside a distribution, each once."""
    return list(dict.fromkeys(_random_parts(fn)))


def has_moments(fn: Any) -> bool:
    """Return whether any parameter of a distribution is random."""
    return next(_random_parts(fn), None) is not None


def _random_parts(part: Any) -> Iterator[MomentTensor]:
    if isinstance(part, MomentTensor):
        yield part
    elif isinstance(part, tuple | list):
        for item in part:
            yield from _random_parts(item)
    elif isinstance(part, Distribution | Transform):
        for name, attribute in vars(part).items():
            if name != "_inv" and type(attribute) not in _PLAIN:
                yield from _random_parts(attribute)


def constrained_tensors(
    fn: Distribution, kind: type = MomentTensor
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and constraint of all random parameters, also of inner distributions."""
    for name, attribute in vars(fn).items():
        if isinstance(attribute, Distribution):
            yield from constrained_tensors(attribute, kind)
        elif isinstance(attribute, kind) and name in fn.arg_constraints:
            yield name, attribute, fn.arg_constraints[name]


def random_parameters(fn: Any) -> list[tuple[Any, int]]:
    """Return the random values inside a distribution, and how many axes are of one element."""
    axes = {id(tensor): _event_dim(fn, kind) for _, tensor, kind in constrained_tensors(fn)}
    return [(unwrap(tensor), axes.get(id(tensor), 0)) for tensor in random_tensors(fn)]


def _event_dim(fn: Any, constraint: Any) -> int:
    # That of a Delta's value, which a reparameteriser leaves behind, depends on the site.
    return fn.event_dim if constraints.is_dependent(constraint) else constraint.event_dim


def with_plain_tensors(fn: Any, tensors: Mapping[int, torch.Tensor], shape: torch.Size) -> Any:
    """Return a float64 copy of a distribution with plain tensors for random ones."""
    # The keys of tensors are ids of random ones. The shape is that of the nodes and the
    # batch.
    return _Copy(tensors, fn.batch_shape, shape).copy_part(fn)


def with_random_tensors(distribution: Any, tensors: Mapping[int, MomentTensor]) -> Any:
    """Return a copy with other random tensors, by ``id``, and with certain ones detached."""
    return _Exchange(tensors, torch.Size(), torch.Size()).copy_part(distribution)


def with_random_elements(
    fn: Any,
    tensors: Mapping[int, MomentTensor],
    stacks: Mapping[int, torch.Tensor],
    shape: torch.Size,
) -> Any:
    """Return a float64 copy with other random tensors of a new shape, by ``id``.

    Of certain tensors in ``stacks``, also by ``id``, it has those of all points [g, ...].
    """
    return _Elements(tensors, stacks, fn.batch_shape, shape).copy_part(fn)


def settled_parameters(fn: Any) -> Any:
    """Return a distribution whose random parameters have covariances computed backwards."""
    tensors = random_tensors(fn)
    rank = len(families.unwrapped(fn, WRAPPERS)[0].batch_shape)
    found = ops.settle_parameters([tensor.value for tensor in tensors], rank)
    if not found:
        return fn
    pairs = ((id(tensor), found.get(id(tensor.value))) for tensor in tensors)
    new = {key: MomentTensor(value) for key, value in pairs if value is not None}
    return _Settled(new, torch.Size(), torch.Size()).copy_part(fn)


class _Copy:
    def __init__(
        self, tensors: Mapping[int, torch.Tensor], batch: torch.Size, shape: torch.Size
    ) -> None:
        self.tensors, self.batch, self.shape = tensors, batch, shape

    def copy_part(self, part: Any) -> Any:
        if isinstance(part, MomentTensor):
            return self._random(part)
        if isinstance(part, torch.Tensor):
            return self._certain(part)
        if isinstance(part, tuple | list) and not isinstance(part, torch.Size):
            return type(part)(map(self.copy_part, part))
        if isinstance(part, Distribution):
            return self._distribution(part)
        return self._transform(part) if isinstance(part, Transform) else part

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        event = tensor.shape[len(self.batch) :]  # of parameters stacked inside, as of a Beta
        return self.tensors[id(tensor)].expand(self.shape + event)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        broadcast = tensor.expand(self.shape) if tensor.shape == self.batch else tensor
        return broadcast.double() if broadcast.is_floating_point() else broadcast

    def _distribution(self, fn: Distribution) -> Distribution:
        new = copy.copy(fn)
        for name, attribute in vars(fn).items():
            vars(new)[name] = self.copy_part(attribute)
        self._shape(new)
        return new

    def _shape(self, new: Distribution) -> None:
        new._batch_shape = self.shape if new.batch_shape == self.batch else new.batch_shape
        new._validate_args = False

    def _transform(self, transform: Transform) -> Transform:
        """Copy a transform without its inverse, which would keep the random tensors."""
        if next(_random_parts(transform), None) is None:
            return transform
        new = copy.copy(transform)
        for name, attribute in vars(transform).items():
            vars(new)[name] = None if name == "_inv" else self.copy_part(attribute)
        return new


def component(fn: Distribution, index: int) -> Distribution:
    """Return one of the univariate distributions along the trailing axis of a batch."""
    return _Component(index, fn.batch_shape).copy_part(fn)


class _Component(_Copy):
    """Copies of one place of the trailing axis of the batch."""

    def __init__(self, index: int, batch: torch.Size) -> None:
        super().__init__({}, batch, batch[:-1])
        self.index = index

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self._certain(tensor)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        axis = len(self.batch) - 1
        keys = (slice(None),) * axis + (self.index,)
        return tensor[keys] if tensor.shape[: axis + 1] == self.batch else tensor


class _Exchange(_Copy):
    """Copies with random tensors of the same shapes and precision."""

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self.tensors[id(tensor)]

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    def _shape(self, new: Distribution) -> None:
        """Keep the batch shape."""


class _Elements(_Copy):
    """Copies with random tensors of the new shape, and certain ones of several points."""

    def __init__(
        self,
        tensors: Mapping[int, torch.Tensor],
        stacks: Mapping[int, torch.Tensor],
        batch: torch.Size,
        shape: torch.Size,
    ) -> None:
        super().__init__(tensors, batch, shape)
        self.stacks = stacks

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self.tensors[id(tensor)]

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        stack = self.stacks.get(id(tensor))
        if stack is None:
            return super()._certain(tensor)
        axes = (1,) * (len(self.shape) - 1 - tensor.dim())
        wide = stack.reshape(stack.shape[:1] + axes + tensor.shape)
        wide = wide.expand(self.shape) if tensor.shape == self.batch else wide
        return wide.double() if wide.is_floating_point() else wide


class _Settled(_Exchange):
    """Copies with some random tensors of the same shapes, or wider ones."""

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self.tensors.get(id(tensor), tensor)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


_SCALE_TRIL = "_unbroadcasted_scale_tril"  # it may lack the batch axes


def tensors_of(distribution: Any) -> list[torch.Tensor]:
    """Return all tensors inside a distribution, or part of one, in a fixed order."""
    if isinstance(distribution, torch.Tensor):
        return [distribution]
    if isinstance(distribution, Distribution | Transform):
        distribution = [
            attribute for name, attribute in vars(distribution).items() if name != "_inv"
        ]
    if isinstance(distribution, tuple | list):
        return [tensor for item in distribution for tensor in tensors_of(item)]
    return []


def certain_tensors(distribution: Any) -> list[torch.Tensor]:
    """Return the tensors inside a distribution that are not random, in a fixed order."""
    return [part for part in tensors_of(distribution) if not isinstance(part, MomentTensor)]


def with_particle_axis(fn: Any, tensors: list[torch.Tensor], count: int) -> Any:
    """Return a distribution whose tensors, in the order of ``tensors_of``, are [particles, ...]."""
    return _Particles(
        dict(zip(map(id, tensors_of(fn)), tensors, strict=True)), fn, count
    ).copy_part(fn)


class _Particles(_Copy):
    """Copies with an axis of particles before all others."""

    def __init__(self, tensors: dict[int, torch.Tensor], fn: Any, count: int) -> None:
        super().__init__(tensors, fn.batch_shape, torch.Size([count]) + fn.batch_shape)
        self.batch_axes = len(fn.batch_shape)  # of the distribution that is copied

    def _random(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._certain(tensor)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._replacement(tensor, min(self.batch_axes, tensor.dim()))

    def _replacement(self, tensor: torch.Tensor, of_batch: int) -> torch.Tensor:
        """Return a tensor's replacement; ``of_batch`` of its leading axes are batch axes."""
        replacement, missing = self.tensors[id(tensor)], len(self.batch) - of_batch
        return replacement.reshape(replacement.shape[:1] + (1,) * missing + replacement.shape[1:])

    def _distribution(self, fn: Distribution) -> Distribution:
        outer, self.batch_axes = self.batch_axes, len(fn.batch_shape)
        new = super()._distribution(fn)
        if isinstance(root := vars(fn).get(_SCALE_TRIL), torch.Tensor):
            vars(new)[_SCALE_TRIL] = self._replacement(root, root.dim() - 2)
        self.batch_axes = outer
        return new

    def _shape(self, new: Distribution) -> None:
        missing = len(self.batch) - len(new.batch_shape)
        new._batch_shape = self.shape[:1] + (1,) * missing + new.batch_shape
        new._validate_args = False

    def _transform(self, transform: Transform) -> Transform:
        new = copy.copy(transform)
        for name, attribute in vars(transform).items():
            vars(new)[name] = None if name == "_inv" else self.copy_part(attribute)
        return new
