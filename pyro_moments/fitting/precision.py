"""The scale of Normal noise by type-II maximum likelihood: after an epoch, or in the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pyro.poutine.messenger import Messenger

from moment_inference.optimisation import batches, best_variance, profiled, scale_of_noise
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.fitting.flat_loss import uncompiled
from pyro_moments.fitting.parameters import Parameters, unconstrained_values
from pyro_moments.objectives.base import Loss


class _Multiplied(Messenger):
    """Handler that multiplies the values of parameters."""

    def __init__(self, factors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.factors = factors

    def _pyro_post_param(self, msg: Any) -> None:
        if msg["name"] in self.factors:
            msg["value"] = msg["value"] * self.factors[msg["name"]]


class _Given(Messenger):
    """Handler that gives a parameter a value, and hides it from handlers outside."""

    def __init__(self, name: str, value: torch.Tensor) -> None:
        super().__init__()
        self.name, self.value = name, value

    def _pyro_param(self, msg: Any) -> None:
        if msg["name"] == self.name:
            msg["value"], msg["done"], msg["stop"] = self.value, True, True


def _derivatives(value: torch.Tensor, shift: torch.Tensor, order: int) -> list[torch.Tensor]:
    """Return derivatives of a value by a number, which can be differentiated further."""
    found: list[torch.Tensor] = []
    for _ in range(order):
        slope = None
        if value.requires_grad:
            (slope,) = torch.autograd.grad(value, shift, create_graph=True, allow_unused=True)
        value = torch.zeros_like(shift) if slope is None else slope
        found.append(value)
    return found


@dataclass(frozen=True)
class NoiseScale:
    """The parameter that is the scale of the noise, and the loss that tells its best value."""

    parameters: Parameters  # this one alone
    loss: Callable[[batches.Arguments], torch.Tensor]  # of data
    profiled: batches.Arguments | None = None  # all data, if the best scale is put into the loss

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return next(iter(self.parameters.leaves))

    def set_best(self, data: batches.Arguments | None = None) -> None:
        """Set the parameter to what is best for data, by default for all."""
        value = self.parameters.values()[self.name].detach()
        shift = torch.zeros_like(value, requires_grad=True)
        data = self.profiled if data is None else data
        assert data is not None
        with torch.enable_grad(), full_precision(), _Multiplied({self.name: shift.exp()}):
            derivatives = _derivatives(self.loss(data), shift, 2)
        best = {self.name: value * best_variance(*derivatives).detach() ** 0.5}
        self.parameters.load(unconstrained_values(self.parameters, best))


class ProfiledELBO(Loss):
    """An ELBO with the best scale of the noise put into it."""

    def __init__(self, objective: Any, noise: NoiseScale) -> None:
        super().__init__()
        self.objective, self.name = uncompiled(objective), noise.name
        self.start = noise.parameters.values()[noise.name].detach().clone()
        self.in_closed_form = getattr(objective, "in_closed_form", False)

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.enable_grad(), full_precision():
            shift = torch.zeros_like(self.start, requires_grad=True)
            with _Given(self.name, self.start * shift.exp()):
                loss = self.objective.differentiable_loss(model, guide, *args, **kwargs)
            return profiled(torch.log, loss, *_derivatives(loss, shift, 2)).reshape(())


def noise_scale(
    objective: Any,
    model: Callable,
    guide: Callable,
    first: batches.Arguments,
    whole: batches.Arguments | None,
) -> NoiseScale:
    """Return the scale of the noise of a model."""
    eager = uncompiled(objective)

    def loss(data: batches.Arguments) -> torch.Tensor:
        args, kwargs = data
        return eager.differentiable_loss(model, guide, *args, **kwargs)

    parameters = Parameters.from_run(lambda: loss(first))
    shifts = {
        name: torch.zeros_like(value.detach(), requires_grad=True)
        for name, value in parameters.values().items()
        if value.numel() == 1 and float(value.detach()) > 0
    }
    with full_precision(), _Multiplied({name: shift.exp() for name, shift in shifts.items()}):
        value = loss(first)
    found = {
        name: [part.item() for part in _derivatives(value, shift, 3)]
        for name, shift in shifts.items()
    }
    name = scale_of_noise(found, framework="pyro")
    constraints = {key: part for key, part in parameters.constraints.items() if key == name}
    return NoiseScale(Parameters({name: parameters.leaves[name]}, constraints), loss, whole)
