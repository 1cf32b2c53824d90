"""The values of sites, from vectors of hyperparameters and of the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Values:
    """Where the sites are in two vectors: hyperparameters on the unconstrained space, and field."""

    transforms: Mapping[str, Any]  # of the hyperparameters, to their supports
    supported: Shapes  # of the hyperparameters, on their supports
    field: Shapes  # of the other sites

    @classmethod
    def of(
        cls,
        sites: Mapping[str, Any],
        hyperparameters: Iterable[str],
        field: Iterable[str],
        bijection: Callable[[Any], Any],  # from the unconstrained space to a support
    ) -> Values:
        """Return where the sites of a run of a model are."""
        transforms = {name: bijection(sites[name]["fn"].support) for name in hyperparameters}
        shapes = ({n: tuple(sites[n]["value"].shape) for n in part} for part in (transforms, field))
        return cls(transforms, *shapes)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the field."""
        return size_of(self.field)

    @cached_property
    def unconstrained(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the hyperparameters on the unconstrained space."""
        pairs = self.transforms.items()
        return {name: tuple(one.inverse_shape(self.supported[name])) for name, one in pairs}

    def constrained(self, theta: Any) -> dict[str, Any]:
        """Return the hyperparameters of one point [h] on their supports."""
        parts = split(theta, self.unconstrained)
        return {name: self.transforms[name](part) for name, part in parts.items()}

    def at(self, theta: Any, x: Any) -> dict[str, Any]:
        """Return the values of all latent sites at one point [h] and a field [d]."""
        return {**self.constrained(theta), **split(x, self.field)}

    def log_jacobians(self, theta: Any) -> list[Any]:
        """Return the sums of the log Jacobians of all transforms at one point [h]."""
        pairs = [(self.transforms[n], p) for n, p in split(theta, self.unconstrained).items()]
        return [one.log_abs_det_jacobian(part, one(part)).sum() for one, part in pairs]


def size_of(shapes: Shapes) -> int:
    """Return the number of elements of sites."""
    return sum(map(math.prod, shapes.values()))


def split(vector: Any, shapes: Shapes) -> dict[str, Any]:
    """Return the parts of a vector by name, in their shapes."""
    parts, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        parts[name] = vector[start:stop].reshape(shape)
        start = stop
    return parts
