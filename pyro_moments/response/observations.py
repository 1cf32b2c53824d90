"""Observed sites as functions of one Gaussian predictor, and their expected log likelihoods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.distributions import Poisson

from moment_inference import nested
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.likelihoods.expected import EXPECTED_LOG_PROB, UNIVARIATE, explain_precision
from pyro_moments.likelihoods.structure import (
    certain_tensors,
    random_tensors,
    with_random_elements,
)

ELEMENTS = 2**15  # of all points, whose likelihoods are evaluated at once
SAME = 1e-10  # relative difference of expected log likelihoods that are the same


@dataclass(frozen=True)
class Observation:
    """An observed site with the one Gaussian behind its parameters."""

    fn: Any  # of its elements
    value: torch.Tensor
    weights: torch.Tensor
    shape: tuple[int, ...]
    gaussian: Any
    stacks: Mapping[int, torch.Tensor] = field(default_factory=dict)  # see at_points

    @classmethod
    def of(cls, name: str, site: Any) -> Observation:
        """Return the observation of a site of a run with moments."""
        whole = site["fn"] if site["mask"] is None else site["fn"].mask(site["mask"])
        given = whole, site["value"], site["scale"]
        fn, value, events, weights = WRAPPERS.elements(*given, lambda fn, value: value)
        values = [unwrap(tensor) for tensor in random_tensors(fn)]
        shape = tuple(whole.batch_shape + whole.event_shape[:events])
        gaussian = nested.predictor_of(name, type(fn).__name__, values, shape)
        weights = torch.as_tensor(weights, dtype=torch.float64, device=gaussian.mean.device).expand(
            shape
        )
        return cls(fn, value, weights, shape, gaussian)

    @property
    def device(self) -> torch.device:
        """Return where the predictor is."""
        return self.gaussian.mean.device

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def predictor(self) -> torch.Tensor:
        """Return the mean of the predictor of each element."""
        return self.gaussian.mean.expand(self.shape)

    @property
    def certain(self) -> list[torch.Tensor]:
        """Return the certain tensors among the parameters."""
        return certain_tensors(self.fn)

    def at_points(self, certain: Sequence[torch.Tensor]) -> Observation:
        """Return the observation at points [g], at which the certain tensors are these."""
        pairs = zip(self.certain, certain, strict=True)
        return replace(self, stacks={id(own): stack for own, stack in pairs})

    def expected(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Return the weighted E log p of each element [..., n], for moments of its predictor."""
        shape = mean.shape[:-1] + self.shape
        predictor = nested.independent(mean.reshape(shape), variance.reshape(shape), self.gaussian)
        replaced = lambda value: MomentTensor(nested.with_predictor(value, predictor))  # noqa: E731
        fn = self._with_values(replaced, shape)
        rule = EXPECTED_LOG_PROB.function_for(fn) or UNIVARIATE.expected
        found = explain_precision(rule, fn, self.value).expand(shape)
        return self._weighted(found).reshape(mean.shape)

    def log_density(self, predictor: torch.Tensor) -> torch.Tensor:
        """Return the weighted log p of each element [..., n], for values of its predictor."""
        shape = predictor.shape[:-1] + self.shape
        values = predictor.reshape(shape)
        fn = self._with_values(lambda value: nested.value_at(value, values), shape)
        return self._weighted(_log_prob(fn, self.value).expand(shape)).reshape(predictor.shape)

    def _with_values(self, replaced: Callable[[Any], Any], shape: Sequence[int]) -> Any:
        """Return the distribution with other values in place of the random ones."""
        tensors = {id(tensor): replaced(unwrap(tensor)) for tensor in random_tensors(self.fn)}
        return with_random_elements(self.fn, tensors, self.stacks, torch.Size(shape))

    def _weighted(self, found: torch.Tensor) -> torch.Tensor:
        return torch.where(self.weights == 0, 0.0, self.weights * found)


def _log_prob(fn: Any, value: torch.Tensor) -> torch.Tensor:
    """Return log p; of counts with one lgamma for each observation, not one for each rate."""
    if isinstance(fn, Poisson):
        return value.xlogy(fn.rate) - fn.rate - (value + 1).lgamma()
    return fn.log_prob(value)


@dataclass(frozen=True)
class Likelihood:
    """An observed site, and how it is evaluated at several points of the hyperparameters."""

    first: Observation  # at some point
    depends: bool  # on the point, other than by its predictor
    joins: bool  # whether several points are evaluated at once

    @classmethod
    def of(cls, *points: Observation) -> Likelihood:
        """Return the likelihood whose observations at two generic points are these."""
        first = points[0]
        if _is_joined(first, points):
            return cls(first, False, True)
        certain = [torch.stack(parts) for parts in zip(*(p.certain for p in points), strict=True)]
        return cls(first, True, _is_joined(first.at_points(certain), points))

    def derivatives(
        self,
        of: Callable,
        points: Callable[[slice], Observation],
        mean: np.ndarray,
        variance: np.ndarray,
    ) -> np.ndarray:
        """Return derivatives of E log p at moments [g, n] of predictors, [g, 3, n].

        ``points`` returns the observation at some of the points.
        """
        count = max(1, ELEMENTS // max(1, self.first.size)) if self.joins else 1
        found = [np.zeros((0, 3, self.first.size))]
        for start in range(0, len(mean), count):
            block = slice(start, start + count)
            observation = points(block) if self.depends else self.first
            moments = (
                torch.tensor(part[block], device=self.first.device).requires_grad_()
                for part in (mean, variance)
            )
            parts = of(observation.expected, *moments)
            found.append(torch.stack(parts, 1).detach().cpu().numpy())
        return np.concatenate(found)

    def log_densities(self, points: Callable[[slice], Observation], eta: np.ndarray) -> np.ndarray:
        """Return log p at predictors [g, m, n], [g, m, n]; ``points`` as above."""
        result = np.empty_like(eta)
        for index, predictors in enumerate(eta):
            own = points(slice(index, index + 1)) if self.depends else self.first
            values = torch.as_tensor(predictors, device=self.first.device)
            with torch.no_grad():
                result[index] = own.log_density(values).cpu().numpy()
        return result


def _is_joined(joined: Observation, points: Sequence[Observation]) -> bool:
    """Return whether one observation at all points gives what that of each point gives."""
    generator = np.random.default_rng(1)
    where = joined.device
    mean = torch.tensor(generator.normal(size=(len(points), joined.size)), device=where)
    variance = torch.tensor(generator.uniform(0.1, 1.0, mean.shape), device=where)
    with torch.no_grad(), suppress(Exception):  # of rules that do not broadcast
        together = joined.expected(mean, variance)
        rows = zip(points, mean, variance, strict=True)
        apart = torch.stack([point.expected(*row) for point, *row in rows])
        return torch.allclose(together, apart, rtol=SAME, atol=SAME)
    return False


def moments(function: Callable, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
    """Return E f, E f′ and E f″ of an elementwise E f by the mean and the variance."""
    value = function(mean, variance)
    first, second = torch.autograd.grad(value.sum(), (mean, variance), materialize_grads=True)
    return [value, first, 2 * second]


def higher(function: Callable, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
    """Return E f‴ to the fifth derivative, the derivatives by the variance being ½ E f″."""
    second = 2 * _slope(function(mean, variance), variance)
    fourth = 2 * _slope(second, variance)
    return [_slope(second, mean), fourth, _slope(fourth, mean)]


def _slope(of: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Return the elementwise derivative, with its graph."""
    if not of.requires_grad:
        return torch.zeros_like(by)
    return torch.autograd.grad(of.sum(), by, create_graph=True, materialize_grads=True)[0]
