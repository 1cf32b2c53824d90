"""A Pyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from moment_calculus.optimisation.minimiser import BY_ADAM, check_deterministic
from moment_calculus.optimisation.rounds import DeterministicLoss
from pyro_moments.fitting.curvature import Curvature
from pyro_moments.fitting.parameters import Parameters, as_array


@dataclass(frozen=True)
class FlatLoss:
    """A loss of unconstrained parameters."""

    loss: Callable[[], torch.Tensor]
    smooth_loss: Callable[[], torch.Tensor]  # can be differentiated twice, unlike a compiled one
    parameters: Parameters

    def check_deterministic(self, remedy: str = BY_ADAM) -> None:
        """Raise ValueError if the loss depends on the state of the random generator."""
        check_deterministic(*self.two_values(), remedy)

    def two_values(self) -> tuple[float, float]:
        """Return two values of the loss, which differ if it depends on the random generator."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return float(self.loss()), float(self.loss())

    def objective(self) -> DeterministicLoss:
        """Return the loss with its derivatives as functions of a vector, for SciPy."""
        leaves = list(self.parameters.leaves.values())

        def value_and_slope(vector: np.ndarray) -> tuple[float, np.ndarray]:
            self.parameters.set_vector(vector)
            loss = self.loss()
            slopes = torch.autograd.grad(loss, leaves, materialize_grads=True)
            return loss.item(), np.concatenate([as_array(slope) for slope in slopes])

        hessian = Curvature(self.smooth_loss, leaves)

        def curvature(vector: np.ndarray) -> np.ndarray:
            self.parameters.set_vector(vector)
            return hessian.dense()

        def hessian_product(vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
            self.parameters.set_vector(vector)
            return hessian.product(direction)

        named = self.scales
        scales = [
            np.full(leaf.numel(), name in named) for name, leaf in self.parameters.leaves.items()
        ]
        precision = max((torch.finfo(leaf.dtype).eps for leaf in leaves), default=0.0)
        return DeterministicLoss(
            value_and_slope,
            curvature,
            hessian_product,
            self._units,
            precision,
            np.concatenate([np.zeros(0, bool), *scales]),
        )

    @property
    def scales(self) -> dict[str, str]:
        """Return the names of scale parameters, with those of their locations."""
        names = self.parameters.leaves.keys()
        pairs = {name: _location_of(name, names) for name in names}
        return {
            name: location
            for name, location in pairs.items()
            if name != location
            and location in self.parameters.leaves
            and self.parameters.leaves[location].shape == self.parameters.leaves[name].shape
        }

    def _units(self, vector: np.ndarray) -> np.ndarray:
        """Return the scale of each location, and for scales what changes their logarithm by one."""
        self.parameters.set_vector(vector)
        with torch.enable_grad():
            values = self.parameters.values()
            units = {name: torch.ones_like(leaf) for name, leaf in self.parameters.leaves.items()}
            for name, location in self.scales.items():
                (rate,) = torch.autograd.grad(values[name].sum(), self.parameters.leaves[name])
                units |= {location: values[name].detach(), name: values[name].detach() / rate}
        return np.concatenate([as_array(unit) for unit in units.values()])


def flat_loss(
    objective: Any, model: Callable, guide: Callable, data: tuple, named: dict
) -> FlatLoss:
    """Return the loss of model and guide at their parameters."""

    def loss() -> torch.Tensor:
        return objective.differentiable_loss(model, guide, *data, **named)

    eager = uncompiled(objective)
    smooth_loss = lambda: eager.differentiable_loss(model, guide, *data, **named)  # noqa: E731
    return FlatLoss(loss, smooth_loss, Parameters.from_run(loss))


def uncompiled(objective: Any) -> Any:
    """Return an objective whose losses can be differentiated any number of times."""
    eager = copy.copy(objective)
    eager.compiled = None
    return eager


def _location_of(scale: str, names: Collection[str]) -> str:
    """Return the name of the location of a scale; other names stay as they are."""
    guide, _, role = scale.rpartition(".")
    pair = {f"{guide}.loc", f"{guide}.scale"}  # of a latent vector; one with factors has more names
    if role == "scale" and pair == {name for name in names if name.startswith(f"{guide}.")}:
        return f"{guide}.loc"
    return "locs.".join(scale.rsplit("scales.", 1))
