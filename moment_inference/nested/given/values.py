"""The values of sites, from vectors of hyperparameters and of the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LINEAR = 1e-9  # difference of linear functions, relative
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Values:
    """Where the sites are in two vectors, of hyperparameters and of the field, unconstrained."""

    transforms: Mapping[str, Any]  # of the hyperparameters, to their supports
    linear: Mapping[str, Any]  # of the field, to its supports
    unconstrained: Shapes  # of the hyperparameters
    field: Shapes  # of the other sites, unconstrained

    @classmethod
    def of(
        cls,
        sites: Mapping[str, Any],
        hyperparameters: Iterable[str],
        field: Iterable[str],
        bijection: Callable[[Any], Any],  # from the unconstrained space to a support
    ) -> Values:
        """Return where the sites of a run of a model are."""
        parts = [
            {name: bijection(sites[name]["fn"].support) for name in names}
            for names in (hyperparameters, field)
        ]
        shapes = (
            {name: tuple(one.inverse_shape(sites[name]["value"].shape)) for name, one in p.items()}
            for p in parts
        )
        return cls(*parts, *shapes)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the field."""
        return size_of(self.field)

    def constrained(self, theta: Any) -> dict[str, Any]:
        """Return the hyperparameters of one point [h] on their supports."""
        parts = split(theta, self.unconstrained)
        return {name: self.transforms[name](part) for name, part in parts.items()}

    def at(self, theta: Any, x: Any) -> dict[str, Any]:
        """Return the values of all latent sites at one point [h] and a field [d]."""
        return {**self.constrained(theta), **self.of_field(x)}

    def of_field(self, x: Any) -> dict[str, Any]:
        """Return the sites of a field [d] on their supports."""
        return {name: self.linear[name](part) for name, part in split(x, self.field).items()}

    def log_jacobians(self, theta: Any) -> list[Any]:
        """Return the sums of the log Jacobians of the hyperparameters' transforms."""
        return _log_jacobians(self.transforms, split(theta, self.unconstrained))

    def field_log_jacobians(self, x: Any) -> list[Any]:
        """Return the same of the field, which do not depend on its values [d]."""
        return _log_jacobians(self.linear, split(x, self.field))


def _log_jacobians(transforms: Mapping[str, Any], parts: Mapping[str, Any]) -> list[Any]:
    pairs = [(transforms[name], part) for name, part in parts.items()]
    return [one.log_abs_det_jacobian(part, one(part)).sum() for one, part in pairs]


def is_linear(transform: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> bool:
    """Return whether a transform of arrays of a shape is linear, but for a constant."""
    zero = np.zeros(shape)
    one, other = np.random.default_rng(0).normal(size=(2, *shape))
    at = [np.asarray(transform(each)) for each in (zero, one, other, one - 3 * other)]
    scale = 1 + max(np.abs(each).max(initial=0) for each in at)
    difference = at[3] - at[1] + 3 * (at[2] - at[0])
    return bool(np.abs(difference).max(initial=0) < LINEAR * scale)


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
