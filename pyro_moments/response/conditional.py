"""A Pyro model given its hyperparameters: densities, linear predictors and likelihoods."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.util import prune_subsample_sites
from torch.distributions import biject_to, constraints

from moment_inference.nested.predictors import (
    PROPAGATION,
    independent,
    predictor_of,
    with_predictor,
)
from moment_inference.nested.selection import Latent
from moment_inference.nested.values import Values, size_of, split
from pyro_moments._host import tree_map
from pyro_moments.draws.model import FixLatent, log_density, runner
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.fitting.flat_loss import JacobianProducts, slope_of
from pyro_moments.fitting.parameters import double_precision
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.fitting.storing import sampled_sites
from pyro_moments.likelihoods.expected import EXPECTED_LOG_PROB, UNIVARIATE, explain_precision
from pyro_moments.likelihoods.structure import random_tensors, with_random_elements
from pyro_moments.sites.traces import is_latent, moment_traces

KEPT = 256  # points of the hyperparameters whose observations are kept
ELEMENTS = 2**15  # of all points, whose likelihoods are evaluated at once
Context = Callable[[], contextlib.AbstractContextManager]


@dataclass(frozen=True, eq=False)
class NestedModel:
    """A model with its arguments in double precision, of which sites can be hyperparameters."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    context: Context = double_precision

    @cached_property
    def sites(self) -> dict[str, Any]:
        """Return the ``sample`` sites of a run of the model."""
        with self.context():
            return sampled_sites(self.model, self.args, self.kwargs)

    @cached_property
    def latent(self) -> dict[str, Latent]:
        """Return the latent sites."""
        return {name: _latent(site) for name, site in self.sites.items() if is_latent(site)}

    def given(
        self, hyperparameters: Sequence[str], field: Sequence[str], likelihoods: Sequence[str]
    ) -> ConditionalModel:
        """Return the model given hyperparameters, with these observed sites as likelihoods."""
        parts = tuple(hyperparameters), tuple(field), tuple(likelihoods)
        return ConditionalModel(
            self.model, self.args, self.kwargs, self.sites, *parts, self.context
        )


def _latent(site: Any) -> Latent:
    support, shape = site["fn"].support, site["value"].shape
    inner = support
    while isinstance(inner, constraints.independent):
        inner = inner.base_constraint
    size = math.prod(biject_to(support).inverse_shape(shape))
    return Latent(size, isinstance(inner, type(constraints.real)))


class _Field:
    """A guide with a Normal of scale one for every site of the field."""

    def __init__(self, locations: Mapping[str, torch.Tensor], events: Mapping[str, int]) -> None:
        self.locations, self.events = locations, events

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Sample the sites."""
        for name, location in self.locations.items():
            pyro.sample(name, dist.Normal(location, 1.0).to_event(self.events[name]))


@dataclass(frozen=True, eq=False)
class ConditionalModel:
    """A model with arguments, given its hyperparameters; all functions take points [g, h]."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    sites: Mapping[str, Any]  # of a run of the model
    hyperparameters: Sequence[str]
    field: Sequence[str]
    likelihoods: Sequence[str]  # observed sites that are not quadratic in the field
    context: Context = double_precision

    @cached_property
    def values(self) -> Values:
        """Return where the sites are in the vectors."""
        transforms = {
            name: biject_to(self.sites[name]["fn"].support) for name in self.hyperparameters
        }
        shapes = [
            {name: tuple(self.sites[name]["value"].shape) for name in names}
            for names in (self.hyperparameters, self.field)
        ]
        return Values(transforms, *shapes)

    @cached_property
    def size(self) -> int:
        """Return the number of coordinates of the field."""
        return self.values.size

    @cached_property
    def _kept(self) -> dict[bytes, _Linear]:
        return {}  # by point

    def densities(self, theta: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the log densities of all sites at values [g, d] of the field, [g] each."""
        with self._running(), torch.no_grad():
            return tree_map(_array, _at_points(self._densities, _tensor(theta), _tensor(x)))

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """Return log p of the hyperparameters on the unconstrained space, [g]."""
        with self._running(), torch.no_grad():
            return _array(_at_points(self._log_prior, _tensor(theta)))

    def predictors(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the means of the predictors at means [g, d] of the field, [g, n]."""
        with self._running(), torch.no_grad():
            pairs = zip(_tensor(theta), _tensor(x), strict=True)
            return np.stack([_array(_predictors(self._run(*pair))) for pair in pairs])

    def at_zero(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the quadratic part at zero [g], its slope [g, d], and the predictors [g, n]."""
        with self._running():
            value, slope, _ = self._quadratics(theta)
            offset = np.stack([_array(part.predictors) for part in self._linear(theta)])
            return _array(value), _array(slope).reshape(len(theta), -1), offset

    def curvature(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the precision of the quadratic part times directions [k, d], [g, k, d]."""
        with self._running():
            _, slope, x = self._quadratics(theta)
            rows = np.tile(-directions, len(theta))
            products = JacobianProducts().times(rows, slope, [x])
            return products.reshape(len(directions), *x.shape).swapaxes(0, 1)

    def slopes(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the slopes of the predictors along directions [k, d], [g, k, n]."""
        with self._running():
            return np.stack([part.along(directions) for part in self._linear(theta)])

    def expected(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return E f, E f′ and E f″ of the log likelihoods f of all observations, [g, 3, n]."""
        return self._derivatives(_moments, theta, mean, variance)

    def higher(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the expected third, fourth and fifth derivatives of the same, [g, 3, n]."""
        return self._derivatives(_higher, theta, mean, variance)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Return the context of all runs: without effects on others, and without validation."""
        with (
            self.context(),
            random_state_restored(),
            torch.enable_grad(),
            poutine.block(),
            pyro.validation_enabled(False),
        ):
            yield

    def _log_prior(self, theta: torch.Tensor) -> torch.Tensor:
        densities = self._densities(theta, theta.new_zeros(self.size))
        own = [densities[name] for name in self.hyperparameters]
        return sum([*own, *self.values.log_jacobians(theta)], theta.new_zeros(()))

    def _densities(self, theta: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
        with FixLatent(self.values.of(theta, x)):
            trace = poutine.trace(self.model).get_trace(*self.args, **self.kwargs)
        nodes = prune_subsample_sites(trace).nodes
        return {n: log_density([site]) for n, site in nodes.items() if site["type"] == "sample"}

    def _quadratic(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        densities = self._densities(theta, x)
        left_out = (*self.hyperparameters, *self.likelihoods)
        return sum((d for name, d in densities.items() if name not in left_out), 0 * x.sum())

    def _quadratics(self, theta: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the quadratic part of each point, its slopes as one vector, and the zeros."""
        x = torch.zeros(len(theta), self.size, requires_grad=True)
        value = _at_points(self._quadratic, _tensor(theta), x)
        return value, slope_of(value.sum(), [x]), x

    def _run(self, theta: torch.Tensor, x: torch.Tensor) -> list[Observation]:
        """Return the observations of a run with moments at one point and means of the field."""
        events = {name: self.sites[name]["fn"].event_dim for name in self.field}
        guide = _Field(split(x, self.values.field), events)
        model = poutine.condition(self.model, data=self.values.constrained(theta))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of covariances, which nobody reads here
            trace, _ = moment_traces(model, guide, self.args, self.kwargs, PROPAGATION)
        return [Observation.of(name, trace.nodes[name]) for name in self.likelihoods]

    def _linear(self, theta: np.ndarray) -> Iterator[_Linear]:
        """Yield what a run at each point finds at zero."""
        for point in theta:
            key = point.tobytes()
            if key not in self._kept:
                if len(self._kept) >= KEPT:
                    self._kept.clear()
                zero = torch.zeros(self.size, requires_grad=True)
                self._kept[key] = _Linear(self._run(_tensor(point), zero), zero)
            yield self._kept[key]

    def _derivatives(
        self, of: Callable, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> np.ndarray:
        with self._running():
            found, start = [np.zeros([len(theta), 3, 0])], 0
            for index, (first, is_shared) in enumerate(self._likelihoods):
                part = slice(start, start := start + first.size)
                moments = mean[:, part], variance[:, part]
                if is_shared:
                    found.append(_in_blocks(of, first, *moments))
                else:
                    ones = [point.observations[index] for point in self._linear(theta)]
                    rows = zip(ones, *moments, strict=True)
                    found.append(np.stack([_evaluated(of, *row) for row in rows]))
            return np.concatenate(found, 2)

    @cached_property
    def _likelihoods(self) -> list[tuple[Observation, bool]]:
        """Return observations, and whether they depend on points by their predictors alone."""
        size = size_of(self.values.unconstrained)
        point = 0.3 * np.random.default_rng(0).normal(size=size)
        runs = [self._run(_tensor(one), torch.zeros(self.size)) for one in (point, point + 0.37)]
        return [(first, first.is_like(second)) for first, second in zip(*runs, strict=True)]


@dataclass(frozen=True)
class Observation:
    """An observed site with the one Gaussian behind its parameters."""

    fn: Any  # of its elements
    value: torch.Tensor
    weights: Any
    shape: tuple[int, ...]
    gaussian: Any

    @classmethod
    def of(cls, name: str, site: Any) -> Observation:
        """Return the observation of a site of a run with moments."""
        whole = site["fn"] if site["mask"] is None else site["fn"].mask(site["mask"])
        given = whole, site["value"], site["scale"]
        fn, value, events, weights = WRAPPERS.elements(*given, lambda fn, value: value)
        values = [unwrap(tensor) for tensor in random_tensors(fn)]
        gaussian = predictor_of(name, type(fn).__name__, values)
        shape = tuple(whole.batch_shape + whole.event_shape[:events])
        weights = torch.as_tensor(weights, dtype=torch.float64).expand(shape)
        return cls(fn, value, weights, shape, gaussian)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def predictor(self) -> torch.Tensor:
        """Return the mean of the predictor of each element."""
        return self.gaussian.mean.expand(self.shape)

    def expected(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Return the weighted E log p of each element [..., n], for moments of its predictor."""
        shape = mean.shape[:-1] + self.shape
        predictor = independent(mean.reshape(shape), variance.reshape(shape), self.gaussian)
        tensors = {
            id(tensor): MomentTensor(with_predictor(unwrap(tensor), predictor))
            for tensor in random_tensors(self.fn)
        }
        fn = with_random_elements(self.fn, tensors, torch.Size(shape))
        rule = EXPECTED_LOG_PROB.function_for(fn) or UNIVARIATE.expected
        found = explain_precision(rule, fn, self.value).expand(shape)
        return torch.where(self.weights == 0, 0.0, self.weights * found).reshape(mean.shape)

    def is_like(self, other: Observation) -> bool:
        """Return whether another one has the same elements, as functions of the predictor."""
        generator = np.random.default_rng(1)
        mean, variance = generator.normal(size=self.size), generator.uniform(0.1, 1, self.size)
        with torch.no_grad():
            one, two = (
                _array(each.expected(_tensor(mean), _tensor(variance))) for each in (self, other)
            )
        return self.shape == other.shape and np.allclose(one, two, rtol=1e-12, atol=1e-12)


@dataclass(frozen=True)
class _Linear:
    """The observations of a run, whose predictors are linear in the field."""

    observations: list[Observation]
    zero: torch.Tensor  # the field

    @cached_property
    def predictors(self) -> torch.Tensor:
        """Return the means of all predictors."""
        return _predictors(self.observations)

    def along(self, directions: np.ndarray) -> np.ndarray:
        """Return their slopes along directions of the field, by the transposed Jacobian."""
        cotangent = torch.zeros_like(self.predictors, requires_grad=True)
        product = slope_of((self.predictors * cotangent).sum(), [self.zero])
        return JacobianProducts().times(directions, product, [cotangent])


def _predictors(observations: Sequence[Observation]) -> torch.Tensor:
    return torch.cat([torch.zeros(0), *(each.predictor.reshape(-1) for each in observations)])


def _at_points(function: Callable, *points: torch.Tensor) -> Any:
    """Return a function at each point, with its graph: by vmap, or one by one if that fails."""
    values = {str(index): part for index, part in enumerate(points)}
    count = len(points[0])
    return runner(lambda parts: function(*parts.values()), values, count)(values, count)


def _in_blocks(
    of: Callable, observation: Observation, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Return derivatives of elements at all points, [g, 3, n]."""
    count = max(1, ELEMENTS // max(1, observation.size))
    parts = [
        _evaluated(of, observation, mean[start : start + count], variance[start : start + count])
        for start in range(0, len(mean), count)
    ]
    return np.concatenate(parts).reshape(len(mean), 3, -1)


def _evaluated(
    of: Callable, observation: Observation, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    tensors = (_tensor(part).requires_grad_() for part in (mean, variance))
    return np.stack([_array(part) for part in of(observation.expected, *tensors)], -2)


def _moments(function: Callable, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
    """Return E f, E f′ and E f″ of an elementwise E f by the mean and the variance."""
    value = function(mean, variance)
    first, second = torch.autograd.grad(value.sum(), (mean, variance), materialize_grads=True)
    return [value, first, 2 * second]


def _higher(function: Callable, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
    """Return E f‴ to the fifth derivative, the derivatives by the variance being ½ E f″."""
    second = 2 * _slope(function(mean, variance), variance)
    fourth = 2 * _slope(second, variance)
    return [_slope(second, mean), fourth, _slope(fourth, mean)]


def _slope(of: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Return the elementwise derivative, with its graph."""
    if not of.requires_grad:
        return torch.zeros_like(by)
    return torch.autograd.grad(of.sum(), by, create_graph=True, materialize_grads=True)[0]


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
