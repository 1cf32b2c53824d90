"""Perturb a model by numbers, such as weights of data, that are zero for the model as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.response.data import Data
from pyro_moments.fitting.curvature import slope_of
from pyro_moments.fitting.graphs import CachedGraph, JacobianProducts
from pyro_moments.prediction.predict import is_deterministic, is_factor
from pyro_moments.response.fixed_parameters import FixedParameters
from pyro_moments.response.priors import shift_prior

Shifts = Mapping[Any, torch.Tensor]
Programs = tuple[Callable, Callable]  # model and guide
Change = tuple[  # shapes of the numbers, and a function that changes model and guide by them
    Mapping[Any, tuple[int, ...]], Callable[[Shifts, Callable, Callable], Programs]
]


class PerturbedLoss:
    """The loss of a model that is changed by numbers, which are zero for the model as it is."""

    def __init__(
        self,
        loss: Callable[[Callable, Callable], Any],
        programs: tuple[Callable, Callable],
        fixed_parameters: FixedParameters,
        change: Change,
    ) -> None:
        self._loss, self._programs, self._fixed_parameters = loss, programs, fixed_parameters
        self._shapes, self._change = change
        self._slope, self._rows = (
            CachedGraph(self._slope_with_numbers, fixed_parameters.leaves),
            JacobianProducts(),
        )

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """Return the derivative by the numbers of the loss's slope along directions [k, n]."""
        with self._fixed_parameters():
            numbers, slope = self._slope()
            derivatives = self._rows.times(rows, slope, [*numbers.values()])
        ends = np.cumsum([0, *(part.numel() for part in numbers.values())])
        return {
            key: derivatives[:, start:end].reshape(-1, *shape)
            for (key, shape), start, end in zip(
                self._shapes.items(), ends[:-1], ends[1:], strict=True
            )
        }

    def _slope_with_numbers(self) -> tuple[dict[Any, torch.Tensor], torch.Tensor]:
        numbers = {
            key: self._fixed_parameters.array(np.zeros(shape)).requires_grad_()
            for key, shape in self._shapes.items()
        }
        loss = self._loss(*self._change(numbers, *self._programs))
        return numbers, slope_of(loss, self._fixed_parameters.leaves)


def data_weights(sites: Mapping[str, dict], guide: Mapping[str, Any], datum: str | None) -> Change:
    """Return the change by weights of the data, as differences from one."""
    # A datum is an element of a plate; without a name, of all plates around every
    # observation.
    data = Data.from_sites(sites, lambda site: is_factor(site["fn"]), datum)
    data.check_guide(guide)

    def changed(numbers: Shifts, model: Callable, guide: Callable) -> Programs:
        weighted = _WeightData(data, 1 + numbers[None])
        return weighted(model), weighted(guide) if data.local_latents else guide

    return {None: data.shape}, changed


class _WeightData(Messenger):
    """Handler that weights observed sites, and the latent sites that belong to a datum."""

    def __init__(self, data: Data, weights: torch.Tensor) -> None:
        super().__init__()
        self.data, self.weights = data, weights

    def _pyro_sample(self, msg: Any) -> None:
        if is_deterministic(msg) or site_is_subsample(msg):
            return
        shape = self.data.weight_shape(msg["name"], msg)
        if shape is not None:
            msg["scale"] = msg["scale"] * self.weights.reshape(shape)


def prior_shifts(shapes: Mapping[tuple[str, str], tuple[int, ...]]) -> Change:
    """Return the change by shifts of the priors' parameters, by (site, parameter)."""
    return shapes, lambda numbers, model, guide: (_ShiftPriors(numbers)(model), guide)


class _ShiftPriors(Messenger):
    """Handler that adds numbers to the parameters of the priors."""

    def __init__(self, numbers: Shifts) -> None:
        super().__init__()
        self.numbers = numbers

    def _pyro_sample(self, msg: Any) -> None:
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if numbers:
            msg["fn"] = shift_prior(msg["fn"], numbers)
