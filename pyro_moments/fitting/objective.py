"""A Pyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from torch.distributions import transform_to

from moment_calculus.optimisation.minimisation import Objective
from moment_calculus.optimisation.outcome import check_deterministic


@dataclass(frozen=True)
class FlatLoss:
    """A loss of the unconstrained parameters, which stay where Pyro keeps them.

    Args:
        loss: makes a differentiable loss.
        smooth_loss: makes one that can be differentiated twice, which a compiled one cannot.
        leaves: the unconstrained parameters by name.
        values: the constrained ones, by a function of none.
    """

    loss: Callable[[], torch.Tensor]
    smooth_loss: Callable[[], torch.Tensor]
    leaves: dict[str, torch.Tensor]
    values: Callable[[], dict[str, torch.Tensor]]

    def check_deterministic(self) -> None:
        """Refuse a loss that depends on the state of the random generator.

        Raises:
            ValueError: naming two values.
        """
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            check_deterministic(float(self.loss()), float(self.loss()))

    def place(self) -> np.ndarray:
        """The parameters as one vector."""
        return np.concatenate([np.zeros(0), *map(_array, self.leaves.values())])

    def move(self, place: np.ndarray) -> None:
        """Set the parameters.

        Args:
            place: as :meth:`place` gives it.
        """
        start = 0
        with torch.no_grad():
            for leaf in self.leaves.values():
                part = place[start : start + leaf.numel()].reshape(tuple(leaf.shape))
                leaf.copy_(torch.as_tensor(part))
                start += leaf.numel()

    def objective(self) -> Objective:
        """For SciPy."""
        leaves = list(self.leaves.values())

        def value_and_slope(place: np.ndarray) -> tuple[float, np.ndarray]:
            self.move(place)
            loss = self.loss()
            slopes = torch.autograd.grad(loss, leaves, materialize_grads=True)
            return loss.item(), np.concatenate([_array(slope) for slope in slopes])

        def curvature(place: np.ndarray) -> np.ndarray:
            self.move(place)
            slopes = torch.autograd.grad(
                self.smooth_loss(), leaves, create_graph=True, materialize_grads=True
            )
            flat = torch.cat([slope.reshape(-1) for slope in slopes])
            rows = [
                torch.autograd.grad(slope, leaves, retain_graph=True, materialize_grads=True)
                for slope in flat
            ]
            return np.stack([np.concatenate([_array(part) for part in row]) for row in rows])

        named = self._scales()
        scales = [np.full(leaf.numel(), name in named) for name, leaf in self.leaves.items()]
        precision = max((torch.finfo(leaf.dtype).eps for leaf in leaves), default=0.0)
        return Objective(
            value_and_slope,
            curvature,
            self._units,
            precision,
            np.concatenate([np.zeros(0, bool), *scales]),
        )

    def _scales(self) -> dict[str, str]:
        """The names of scales, with those of their locations."""
        pairs = {name: "locs.".join(name.rsplit("scales.", 1)) for name in self.leaves}
        return {
            name: place
            for name, place in pairs.items()
            if name != place
            and place in self.leaves
            and self.leaves[place].shape == self.leaves[name].shape
        }

    def _units(self, place: np.ndarray) -> np.ndarray:
        """The scale of each location, and for scales what changes their logarithm by one."""
        self.move(place)
        with torch.enable_grad():
            values = self.values()
            units = {name: torch.ones_like(leaf) for name, leaf in self.leaves.items()}
            for name, location in self._scales().items():
                (rate,) = torch.autograd.grad(values[name].sum(), self.leaves[name])
                units |= {location: values[name].detach(), name: values[name].detach() / rate}
        return np.concatenate([_array(unit) for unit in units.values()])


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().reshape(-1).to("cpu", torch.float64).numpy()


def flat_loss(
    objective: Any, model: Callable, guide: Callable, data: tuple, named: dict
) -> FlatLoss:
    """The loss with the parameters that it has, of the model and of the guide.

    Args:
        objective: an ELBO of Pyro.
        model: the model.
        guide: the guide.
        data: arguments of both.
        named: likewise, by name.
    """

    def loss() -> torch.Tensor:
        return objective.differentiable_loss(model, guide, *data, **named)

    with poutine.trace(param_only=True) as capture:
        loss()
    leaves = _leaves(capture)
    constraints = pyro.get_param_store().get_state()["constraints"]

    def values() -> dict[str, torch.Tensor]:
        return {name: transform_to(constraints[name])(leaf) for name, leaf in leaves.items()}

    eager = copy.copy(objective)
    eager.compiled = None
    twice = lambda: eager.differentiable_loss(model, guide, *data, **named)  # noqa: E731
    return FlatLoss(loss, twice, leaves, values)


def make_doubles(evaluate: Callable[[], Any]) -> None:
    """Turn the parameters that an evaluation meets into doubles.

    Single precision among them may end an evaluation before it met them all: then there is another.

    Args:
        evaluate: what meets them.
    """
    single, failure = [torch.empty(0)], None
    while single:
        failure = None
        with poutine.trace(param_only=True) as capture:
            try:
                evaluate()
            except Exception as error:
                failure = error
        single = [leaf for leaf in _leaves(capture).values() if leaf.dtype is torch.float32]
        for leaf in single:
            leaf.data = leaf.data.double()
    if failure is not None:
        raise failure


def _leaves(capture: Any) -> dict[str, torch.Tensor]:
    """The unconstrained parameters that a trace met."""
    values = {name: site["value"] for name, site in capture.trace.nodes.items()}
    return {
        name: value.unconstrained() if hasattr(value, "unconstrained") else value
        for name, value in values.items()
    }
