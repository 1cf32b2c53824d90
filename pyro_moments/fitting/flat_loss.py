"""A Pyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge

from moment_inference.objectives import starts
from moment_inference.optimisation import DeterministicLoss, minimiser
from pyro_moments.fitting.parameters import Parameters, as_array, unconstrained_values
from pyro_moments.objectives.base import Program
from pyro_moments.sites.subsamples import DrawnSubsamples

Made = TypeVar("Made")
BATCHABLE_SIZE = 1 << 15  # elements of a gradient above which batches are slower
BATCH_ROOM = 1 << 19  # elements of the largest gradient of all passes in a batch


class CachedGraph(Generic[Made]):
    """A function of the parameters that is kept with its graph until they change."""

    def __init__(self, make: Callable[[], Made], leaves: Sequence[torch.Tensor]) -> None:
        self._make, self._leaves = make, leaves
        self._cached: list[tuple[list, Made]] = []

    def __call__(self) -> Made:
        """Return the last result, or a new one if the parameters have changed."""
        state = [(leaf._version, get_gradient_edge(leaf).node) for leaf in self._leaves]
        if not self._cached or self._cached[0][0] != state:
            self._cached.clear()  # frees the old graph before the new one is made
            self._cached.append((state, self._make()))
        return self._cached[0][1]


class JacobianProducts:
    """Products of rows with a vector's Jacobian, in batches if possible."""

    def __init__(self) -> None:
        self._batched = True

    def times(
        self, rows: np.ndarray, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        """Return rows [k, d] times the Jacobian of a vector [d] by the leaves."""
        width = sum(leaf.numel() for leaf in leaves)
        if not vector.requires_grad or not width:
            return np.zeros([len(rows), width])
        tensor = torch.as_tensor(rows, dtype=vector.dtype, device=vector.device)
        batch = _batch_size(vector) if self._batched and len(rows) > 1 else 1
        parts = [self._batch_of_products(part, vector, leaves) for part in tensor.split(batch)]
        return np.concatenate([np.zeros([0, width]), *parts])

    def _batch_of_products(
        self, rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        if self._batched and len(rows) > 1:
            try:
                return _products(rows, vector, leaves, is_batched=True)
            except RuntimeError:  # an operation does not support batched gradients
                self._batched = False
        return np.concatenate([_products(row, vector, leaves, is_batched=False) for row in rows])


def _products(
    rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor], *, is_batched: bool
) -> np.ndarray:
    """Return the products of rows, or of a single row, with the Jacobian."""
    gradients = torch.autograd.grad(
        vector, leaves, rows, retain_graph=True, allow_unused=True, is_grads_batched=is_batched
    )
    count = len(rows) if is_batched else 1
    parts = [
        np.zeros([count, leaf.numel()]) if part is None else as_array(part).reshape(count, -1)
        for part, leaf in zip(gradients, leaves, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def _batch_size(vector: torch.Tensor) -> int:
    """Return how many backward passes are worth a batch."""
    largest = max((math.prod(shape) for shape in _shapes(vector)), default=1)
    return max(1, BATCH_ROOM // max(largest, 1)) if largest < BATCHABLE_SIZE else 1


def _shapes(vector: torch.Tensor) -> Iterator[torch.Size]:
    """Yield the shapes of all gradients in a backward pass."""
    waiting: list[Any] = [vector.grad_fn]
    seen = {None, *waiting}
    while waiting:
        node = waiting.pop()
        yield from (part.shape for part in node._input_metadata)
        following = {function for function, _ in node.next_functions} - seen
        seen |= following
        waiting += following


class Hessian:
    """The Hessian of a loss at the current parameters [n].

    The graph of the gradient is kept for the last point, because many products are
    computed there.
    """

    def __init__(self, loss: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> None:
        self.leaves, self._rows = leaves, JacobianProducts()
        self._graph = CachedGraph(lambda: _with_slope(loss(), leaves), leaves)

    def value_and_slope(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and its gradient [n], whose graph the products need."""
        return self._graph()

    def product(self, direction: np.ndarray) -> np.ndarray:
        """Return the product of the Hessian with a direction [n]."""
        return self._rows.times(direction[None], self._graph()[1], self.leaves)[0]

    def dense(self) -> np.ndarray:
        """Return the Hessian, [n, n]."""
        slope = self._graph()[1]
        return self._rows.times(np.eye(len(slope)), slope, self.leaves)


def slope_of(loss: torch.Tensor, leaves: list[torch.Tensor]) -> torch.Tensor:
    """Return the gradient of a loss by the leaves as one vector, with its graph."""
    slopes = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    return torch.cat([slope.reshape(-1) for slope in slopes])


def _with_slope(
    loss: torch.Tensor, leaves: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    return loss, slope_of(loss, leaves)


def two_values(loss: Callable[[], torch.Tensor]) -> tuple[float, float]:
    """Return two values of a loss, which differ if it is random."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return float(loss()), float(loss())


def check_deterministic(loss: Callable[[], torch.Tensor], *remedy: str) -> None:
    """Raise ValueError if a program draws a subsample, or two values of its loss differ."""
    with DrawnSubsamples() as drawn:
        values = two_values(loss)
    minimiser.check_no_subsample(drawn.plates, *remedy)
    minimiser.check_deterministic(*values, *remedy)


def flat_loss(objective: Any, program: Program, parameters: Parameters) -> DeterministicLoss:
    """Return a program's loss with its derivatives as functions of a vector, for SciPy."""
    leaves = list(parameters.leaves.values())
    hessian = Hessian(partial(program.loss, uncompiled(objective)), leaves)
    gaussian = _gaussian(program.guide, parameters)

    def loss_and_slopes() -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        if gaussian is not None and getattr(objective, "compiled", None) is None:
            # products follow at almost every point: they take the graph that is made here
            loss, slope = hessian.value_and_slope()
            return loss, [slope.detach()]
        loss = program.loss(objective)
        return loss, torch.autograd.grad(loss, leaves, materialize_grads=True)

    def hessian_at(vector: np.ndarray) -> Hessian:
        parameters.set_vector(vector)
        return hessian

    def value_and_slope(vector: np.ndarray) -> tuple[float, np.ndarray]:
        parameters.set_vector(vector)
        try:
            loss, slopes = loss_and_slopes()
        except ValueError as error:
            if not starts.INVALID.search(str(error)):
                raise
            return math.nan, np.full_like(vector, math.nan)  # a step too far, as in NumPyro
        return loss.item(), np.concatenate([as_array(slope) for slope in slopes])

    named = locations_by_scale(parameters)
    scales = [np.full(leaf.numel(), name in named) for name, leaf in parameters.leaves.items()]
    return DeterministicLoss(
        value_and_slope,
        lambda vector: hessian_at(vector).dense(),
        lambda vector, direction: hessian_at(vector).product(direction),
        partial(_units, parameters),
        max((torch.finfo(leaf.dtype).eps for leaf in leaves), default=0.0),
        np.concatenate([np.zeros(0, bool), *scales]),
        gaussian,
    ).with_singles(_sizes(parameters), named)


def _gaussian(guide: Any, parameters: Parameters) -> Any:
    """Return where a guide with covariances has its parameters; None for others."""
    if not hasattr(guide, "gaussian_parameters"):
        return None
    return guide.gaussian_parameters(_sizes(parameters))


def _sizes(parameters: Parameters) -> dict[str, int]:
    return {name: leaf.numel() for name, leaf in parameters.leaves.items()}


def _units(parameters: Parameters, vector: np.ndarray) -> np.ndarray:
    """Return each location's scale; of scales, what moves their log by one."""
    parameters.set_vector(vector)
    leaves = parameters.leaves
    with torch.enable_grad():
        values = parameters.values()
        units = {name: torch.ones_like(leaf) for name, leaf in leaves.items()}
        for name, location in locations_by_scale(parameters).items():
            (rate,) = torch.autograd.grad(values[name].sum(), leaves[name])
            units |= {location: values[name].detach(), name: values[name].detach() / rate}
    return np.concatenate([as_array(unit) for unit in units.values()])


def locations_by_scale(parameters: Parameters) -> dict[str, str]:
    """Return the location parameter's name by scale parameter, of the same shape."""
    leaves = parameters.leaves
    pairs = {name: _location_of(name, leaves.keys()) for name in leaves}
    return {
        name: location
        for name, location in pairs.items()
        if name != location and location in leaves and leaves[location].shape == leaves[name].shape
    }


def multiply_start(parameters: Parameters, factors: starts.Factors) -> None:
    """Multiply the scales of a guide and their locations, in place."""
    pairs, values = locations_by_scale(parameters), parameters.constrained_copies()
    for scale, location in pairs.items():
        values[scale] *= factors.scales
        values[location] *= factors.locations
    parameters.load(unconstrained_values(parameters, values))


def smaller_start(
    parameters: Parameters, vector: np.ndarray, factors: starts.Factors
) -> np.ndarray:
    """Return a vector of parameters with the scales of a guide and their locations multiplied."""
    parameters.set_vector(vector)
    multiply_start(parameters, factors)
    return parameters.vector()


def uncompiled(objective: Any) -> Any:
    """Return an objective whose losses can be differentiated any number of times."""
    eager = copy.copy(objective)
    eager.compiled = None
    return eager


def _location_of(scale: str, names: Collection[str]) -> str:
    """Return the name of the location of a scale; other names stay as they are."""
    path = scale.split(".")
    if not {"locs", "scales"} & {*path}:
        guide = scale.removesuffix(".scale")
        pair = {f"{guide}.loc", f"{guide}.scale"}  # of a vector; one with factors has more names
        return f"{guide}.loc" if pair == {n for n in names if n.startswith(f"{guide}.")} else scale
    # A site may have any name, "scale" or "scales", too.
    indices = (index for index, part in enumerate(path) if part == "scales")
    candidates = (".".join([*path[:index], "locs", *path[index + 1 :]]) for index in indices)
    return next((name for name in candidates if name in names), scale)
