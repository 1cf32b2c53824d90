"""The scale of Normal noise by type-II maximum likelihood: after an epoch, or in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pyro.poutine.messenger import Messenger

from moment_inference.optimisation import precision
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.fitting.flat_loss import uncompiled
from pyro_moments.fitting.parameters import Parameters, unconstrained_values
from pyro_moments.objectives.base import Loss, Program


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
    derivatives: list[torch.Tensor] = []
    for _ in range(order):
        slope = None
        if value.requires_grad:
            (slope,) = torch.autograd.grad(value, shift, create_graph=True, allow_unused=True)
        value = torch.zeros_like(shift) if slope is None else slope
        derivatives.append(value)
    return derivatives


@dataclass(frozen=True)
class NoiseScale:
    """The parameter that is the scale of the noise, and how it is set."""

    parameters: Parameters  # this one alone
    objective: Any  # that tells its best value
    profiled: bool  # whether the best scale is put into the loss

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return next(iter(self.parameters.leaves))

    def set_best(self, program: Program) -> None:
        """Set the parameter to what is best for the data of a program."""
        value = self.parameters.values()[self.name].detach()
        shift = torch.zeros_like(value, requires_grad=True)
        with torch.enable_grad(), full_precision(), _Multiplied({self.name: shift.exp()}):
            derivatives = _derivatives(program.loss(self.objective), shift, 2)
        best = {self.name: value * precision.best_variance(*derivatives).detach() ** 0.5}
        self.parameters.load(unconstrained_values(self.parameters, best))


class ProfiledELBO(Loss):
    """An ELBO with the best scale of the noise put into it."""

    def __init__(self, noise: NoiseScale) -> None:
        super().__init__()
        self.objective, self.name = noise.objective, noise.name
        self.start = noise.parameters.values()[noise.name].detach().clone()
        self.in_closed_form = getattr(noise.objective, "in_closed_form", False)

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.enable_grad(), full_precision():
            shift = torch.zeros_like(self.start, requires_grad=True)
            with _Given(self.name, self.start * shift.exp()):
                loss = self.objective.differentiable_loss(model, guide, *args, **kwargs)
            return precision.profiled(torch.log, loss, *_derivatives(loss, shift, 2)).reshape(())


def noise_scale(objective: Any, program: Program, profiled: bool) -> NoiseScale:
    """Return the scale of the noise of a model."""
    eager = uncompiled(objective)
    parameters = Parameters.from_run(lambda: program.loss(eager))
    shifts = {
        name: torch.zeros_like(value.detach(), requires_grad=True)
        for name, value in parameters.values().items()
        if value.numel() == 1 and float(value.detach()) > 0
    }
    with full_precision(), _Multiplied({name: shift.exp() for name, shift in shifts.items()}):
        value = program.loss(eager)
    found = {
        name: [part.item() for part in _derivatives(value, shift, 3)]
        for name, shift in shifts.items()
    }
    name = precision.scale_of_noise(found, framework="pyro")
    constraints = {key: part for key, part in parameters.constraints.items() if key == name}
    return NoiseScale(Parameters({name: parameters.leaves[name]}, constraints), eager, profiled)
