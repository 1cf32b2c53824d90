"""Random tensors inside a distribution object, and the same distribution with them replaced.

A copy with plain tensors in their place needs no constructor, so that whatever a distribution
derives from its parameters (a reciprocal, a transform, another distribution) is found as well.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributions import Distribution
from torch.distributions.transforms import Transform

from pyro_moments.evaluation.tensor import MomentTensor

_PLAIN = {torch.Tensor, torch.nn.Parameter, torch.Size, bool, type(None)}  # hold none


def random_tensors(fn: Any) -> list[MomentTensor]:
    """All random tensors inside a distribution, each once.

    Args:
        fn: a distribution.
    """
    return list({id(tensor): tensor for tensor in _found(fn)}.values())


def has_moments(fn: Any) -> bool:
    """Whether any parameter of a distribution is random.

    Args:
        fn: a distribution.
    """
    return next(_found(fn), None) is not None


def _found(part: Any) -> Iterator[MomentTensor]:
    if isinstance(part, MomentTensor):
        yield part
    elif isinstance(part, tuple | list):
        for item in part:
            yield from _found(item)
    elif isinstance(part, Distribution | Transform):
        for name, attribute in vars(part).items():
            if name != "_inv" and type(attribute) not in _PLAIN:
                yield from _found(attribute)


def constrained_tensors(
    fn: Distribution, kind: type = MomentTensor
) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and constraint of every random parameter of a distribution.

    Those of the distributions inside it are found too.

    Args:
        fn: a distribution.
        kind: of tensors that are random.
    """
    for name, attribute in vars(fn).items():
        if isinstance(attribute, Distribution):
            yield from constrained_tensors(attribute, kind)
        elif isinstance(attribute, kind) and name in fn.arg_constraints:
            yield name, attribute, fn.arg_constraints[name]


def replaced(fn: Any, tensors: Mapping[int, torch.Tensor], shape: torch.Size) -> Any:
    """Copy of a distribution in double precision, with plain tensors for the random ones.

    Args:
        fn: a distribution.
        tensors: what replaces a random tensor, by its ``id``.
        shape: batch shape of the copy: the nodes, then the batch shape of ``fn``.

    Returns:
        The copy, without validation.
    """
    return _Copy(tensors, fn.batch_shape, shape).of(fn)


def exchanged(part: Any, tensors: Mapping[int, MomentTensor]) -> Any:
    """Copy of a distribution with other random tensors, and without the graphs of certain ones.

    Args:
        part: a distribution, or any part of one.
        tensors: what takes the place of a random tensor, by its ``id``.
    """
    return _Exchange(tensors, torch.Size(), torch.Size()).of(part)


class _Copy:
    def __init__(
        self, tensors: Mapping[int, torch.Tensor], batch: torch.Size, shape: torch.Size
    ) -> None:
        self.tensors, self.batch, self.shape = tensors, batch, shape

    def of(self, part: Any) -> Any:
        if isinstance(part, MomentTensor):
            return self._random(part)
        if isinstance(part, torch.Tensor):
            return self._certain(part)
        if isinstance(part, tuple | list) and not isinstance(part, torch.Size):
            return type(part)(map(self.of, part))
        if isinstance(part, Distribution):
            return self._distribution(part)
        return self._transform(part) if isinstance(part, Transform) else part

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self.tensors[id(tensor)].expand(self.shape)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.expand(self.shape) if tensor.shape == self.batch else tensor
        return wide.double() if wide.is_floating_point() else wide

    def _distribution(self, fn: Distribution) -> Distribution:
        new = copy.copy(fn)
        for name, attribute in vars(fn).items():
            vars(new)[name] = self.of(attribute)
        self._shape(new)
        return new

    def _shape(self, new: Distribution) -> None:
        new._batch_shape = self.shape if new.batch_shape == self.batch else new.batch_shape
        new._validate_args = False

    def _transform(self, transform: Transform) -> Transform:
        """A transform remembers its inverse, which would keep the random tensors."""
        if next(_found(transform), None) is None:
            return transform
        new = copy.copy(transform)
        for name, attribute in vars(transform).items():
            vars(new)[name] = None if name == "_inv" else self.of(attribute)
        return new


class _Exchange(_Copy):
    """Of the same shapes and precision."""

    def _random(self, tensor: MomentTensor) -> torch.Tensor:
        return self.tensors[id(tensor)]

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    def _shape(self, new: Distribution) -> None:
        """As it was."""


_ROOT = "_unbroadcasted_scale_tril"  # which need not have the axes of the batch


def tensors_of(part: Any) -> list[torch.Tensor]:
    """All tensors inside a distribution, one after the other.

    Args:
        part: a distribution, or any part of one.
    """
    if isinstance(part, torch.Tensor):
        return [part]
    if isinstance(part, Distribution | Transform):
        part = [attribute for name, attribute in vars(part).items() if name != "_inv"]
    if isinstance(part, tuple | list):
        return [tensor for item in part for tensor in tensors_of(item)]
    return []


def of_particles(fn: Any, tensors: list[torch.Tensor], count: int) -> Any:
    """A distribution of particles, whose batch shape begins with their number.

    Args:
        fn: the distribution of one particle.
        tensors: what takes the place of those of :func:`tensors_of`, [particles, ...].
        count: number of particles.
    """
    return _Particles(dict(zip(map(id, tensors_of(fn)), tensors, strict=True)), fn, count).of(fn)


class _Particles(_Copy):
    """With an axis for the particles before all others."""

    def __init__(self, tensors: dict[int, torch.Tensor], fn: Any, count: int) -> None:
        super().__init__(tensors, fn.batch_shape, torch.Size([count]) + fn.batch_shape)
        self.own = len(fn.batch_shape)  # axes of the batch of the distribution that is copied

    def _random(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._certain(tensor)

    def _certain(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._placed(tensor, min(self.own, tensor.dim()))

    def _placed(self, tensor: torch.Tensor, of_batch: int) -> torch.Tensor:
        """A tensor of which the first axes, so many, are of the batch."""
        found, missing = self.tensors[id(tensor)], len(self.batch) - of_batch
        return found.reshape(found.shape[:1] + (1,) * missing + found.shape[1:])

    def _distribution(self, fn: Distribution) -> Distribution:
        outer, self.own = self.own, len(fn.batch_shape)
        new = super()._distribution(fn)
        if isinstance(root := vars(fn).get(_ROOT), torch.Tensor):
            vars(new)[_ROOT] = self._placed(root, root.dim() - 2)
        self.own = outer
        return new

    def _shape(self, new: Distribution) -> None:
        missing = len(self.batch) - len(new.batch_shape)
        new._batch_shape = self.shape[:1] + (1,) * missing + new.batch_shape
        new._validate_args = False

    def _transform(self, transform: Transform) -> Transform:
        new = copy.copy(transform)
        for name, attribute in vars(transform).items():
            vars(new)[name] = None if name == "_inv" else self.of(attribute)
        return new
