"""A Pyro model given its hyperparameters: densities, linear predictors and likelihoods."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer.autoguide.initialization import InitMessenger
from pyro.poutine.util import prune_subsample_sites
from torch.distributions import biject_to

from moment_inference import nested
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.draws.model import FixLatent, log_density, runner
from pyro_moments.fitting.flat_loss import JacobianProducts, slope_of
from pyro_moments.fitting.parameters import double_precision
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.fitting.storing import sampled_sites
from pyro_moments.response.observations import Likelihood, Observation, higher, moments
from pyro_moments.sites.traces import is_latent, is_sample, moment_traces

DRAWS = 101  # of a prior, whose quartiles are where searches begin
KEPT = 1024  # points of the hyperparameters whose certain parameters are kept
Context = Callable[[], contextlib.AbstractContextManager]
Certain = list[list[torch.Tensor]]  # parameters, of each site


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
            found = sampled_sites(self.model, self.args, self.kwargs)
        for frame in (frame for site in found.values() for frame in site["cond_indep_stack"]):
            if (frame.full_size or frame.size) != frame.size:
                raise nested.subsampled(frame.name, frame.full_size, frame.size)
        return found

    @cached_property
    def device(self) -> torch.device:
        """Return where the values of the sites are."""
        return _device(self.sites)

    @cached_property
    def latent(self) -> dict[str, nested.Latent]:
        """Return the latent sites."""
        return {name: _latent(site) for name, site in self.sites.items() if is_latent(site)}

    def transform(self, name: str) -> nested.Transform | None:
        """Return the function from the unconstrained space to a site's support, elementwise."""
        own = biject_to(self.sites[name]["fn"].support)
        while hasattr(own, "base_transform"):  # of elements that are independent events
            own = own.base_transform
        if own.domain.event_dim:
            return None
        slope = lambda x: own.log_abs_det_jacobian(x, own(x))  # noqa: E731
        return nested.Transform(
            *(partial(_computed, function, self.device) for function in (own, own.inv, slope))
        )

    def values(self, names: Sequence[str], points: np.ndarray) -> dict[str, np.ndarray]:
        """Return sites on their supports, [count, ...], of unconstrained points."""
        constrained = nested.Values.of(self.sites, names, (), biject_to).constrained
        return tree_map(_array, torch.vmap(constrained)(_tensor(points, self.device)))

    def unconstrained(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the unconstrained point of sites on their supports, one after another."""
        points = [
            _computed(biject_to(self.sites[name]["fn"].support).inv, self.device, value).ravel()
            for name, value in values.items()
        ]
        return np.concatenate([np.zeros(0), *points])

    def given(
        self, hyperparameters: Sequence[str], field: Sequence[str], likelihoods: Sequence[str]
    ) -> ConditionalModel:
        """Return the model given hyperparameters, with these observed sites as likelihoods."""
        parts = tuple(hyperparameters), tuple(field), tuple(likelihoods)
        return ConditionalModel(
            self.model, self.args, self.kwargs, self.sites, *parts, self.context
        )


def _computed(function: Callable, device: torch.device, x: np.ndarray) -> np.ndarray:
    return _array(function(_tensor(x, device)))


def _latent(site: Any) -> nested.Latent:
    support, shape = site["fn"].support, tuple(site["value"].shape)
    if support.is_discrete:
        raise nested.not_continuous(site["name"], type(site["fn"]).__name__)
    transform, device = biject_to(support), site["value"].device
    unconstrained = transform.inverse_shape(shape)
    is_linear = nested.is_linear(partial(_computed, transform, device), unconstrained)
    return nested.Latent(shape, math.prod(unconstrained), is_linear)


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
    def device(self) -> torch.device:
        """Return where the values of the sites are."""
        return _device(self.sites)

    @cached_property
    def values(self) -> nested.Values:
        """Return where the sites are in the vectors."""
        return nested.Values.of(self.sites, self.hyperparameters, self.field, biject_to)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the field."""
        return self.values.size

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return _tensor(array, self.device)

    @cached_property
    def _kept(self) -> dict[bytes, Certain]:
        return {}  # by point

    @cached_property
    def _ways(self) -> dict[tuple[str, bool], Callable]:
        return {}  # to run functions at points

    def prior_quartiles(self) -> np.ndarray:
        """Return quartiles of the hyperparameters' priors, unconstrained, given medians, [3, h]."""
        found = dict[str, torch.Tensor]()

        def median(site: Any) -> torch.Tensor | None:
            name = site["name"]
            if name not in self.hyperparameters:
                return fields.get(name)
            transform, own = self.values.transforms[name], biject_to(site["fn"].support)
            shape = self.values.unconstrained[name]
            zeros = torch.zeros(shape, device=self.device)
            if not torch.equal(own(zeros), transform(zeros)):
                raise nested.moving_support(name)
            found[name] = _quartiles(site["fn"], transform, shape, self.device)
            return transform(found[name][1])

        with self._running(), torch.no_grad():
            torch.manual_seed(0)
            fields = self.values.of_field(torch.zeros(self.size, device=self.device))
            InitMessenger(median)(self.model)(*self.args, **self.kwargs)
        parts = [_array(found[name]).reshape(3, -1) for name in self.hyperparameters]
        return np.concatenate([np.zeros((3, 0)), *parts], 1)

    def densities(self, theta: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the log densities of all sites at values [g, d] of the field, [g] each."""
        with self._running(), torch.no_grad():
            return tree_map(
                _array,
                self._at_points(self._densities, self._tensor(theta), self._tensor(x)),
            )

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """Return log p of the hyperparameters on the unconstrained space, [g]."""
        with self._running(), torch.no_grad():
            return _array(self._at_points(self._log_prior, self._tensor(theta)))

    def predictors(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the means of the predictors at means [g, d] of the field, [g, n]."""
        with self._running(), torch.no_grad():
            return _array(self._runs(self._tensor(theta), self._tensor(x))[0])

    def at_zero(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the quadratic part at zero [g], its slope [g, d], and the predictors [g, n]."""
        with self._running():
            value, slope, x = self._quadratics(theta)
            offset, _ = self._runs(self._tensor(theta), x.detach())
            return _array(value), _array(slope).reshape(tuple(x.shape)), _array(offset)

    def curvature(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the precision of the quadratic part times directions [k, d], [g, k, d]."""
        with self._running():
            _, slope, x = self._quadratics(theta)
            return _products(-directions, slope, x)

    def slopes(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the slopes of the predictors along directions [k, d], [g, k, n]."""
        with self._running():
            x = self._zeros(theta)
            predictors, _ = self._runs(self._tensor(theta), x)
            cotangent = torch.zeros_like(predictors, requires_grad=True)
            transposed = slope_of((predictors * cotangent).sum(), [x])
            return _products(directions, transposed, cotangent)

    def expected(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return E f, E f′ and E f″ of the log likelihoods f of all observations, [g, 3, n]."""
        return self._derivatives(moments, theta, mean, variance)

    def higher(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the expected third, fourth and fifth derivatives of the same, [g, 3, n]."""
        return self._derivatives(higher, theta, mean, variance)

    def log_likelihoods(self, theta: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Return the log likelihoods f at predictors [g, m, n], [g, m, n]."""
        with self._running():
            found = [eta[:, :, :0]]
            for each, points, part in self._parts(theta):
                found.append(each.log_densities(points, eta[:, :, part]))
            return np.concatenate(found, 2)

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
        with FixLatent(self.values.at(theta, x)):
            trace = poutine.trace(self.model).get_trace(*self.args, **self.kwargs)
        nodes = prune_subsample_sites(trace).nodes
        return {name: log_density([site]) for name, site in nodes.items() if is_sample(site)}

    def _quadratic(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        densities = self._densities(theta, x)
        left_out = (*self.hyperparameters, *self.likelihoods)
        kept = [density for name, density in densities.items() if name not in left_out]
        return sum([*kept, *self.values.field_log_jacobians(x)], 0 * x.sum())

    def _zeros(self, theta: np.ndarray) -> torch.Tensor:
        return torch.zeros(len(theta), self.size, requires_grad=True, device=self.device)

    def _quadratics(self, theta: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the quadratic part of each point, its slopes as one vector, and the zeros."""
        x = self._zeros(theta)
        value = self._at_points(self._quadratic, self._tensor(theta), x)
        return value, slope_of(value.sum(), [x]), x

    def _run(self, theta: torch.Tensor, x: torch.Tensor) -> list[Observation]:
        """Return the observations of a run with moments at one point and means of the field."""
        events = {name: self.sites[name]["fn"].event_dim for name in self.field}
        guide = _Field(self.values.of_field(x), events)
        model = poutine.condition(self.model, data=self.values.constrained(theta))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of covariances, which nobody reads here
            trace, _ = moment_traces(model, guide, self.args, self.kwargs, nested.PROPAGATION)
        return [Observation.of(name, trace.nodes[name]) for name in self.likelihoods]

    def _read(self, theta: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, Certain]:
        """Return the predictors of a run with moments, and the certain parameters of each site."""
        found = self._run(theta, x)
        predictors = [x.new_zeros(0), *(each.predictor.reshape(-1) for each in found)]
        return torch.cat(predictors), [each.certain for each in found]

    def _runs(self, theta: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, Certain]:
        """Return the same for all points, with a leading axis."""
        return self._at_points(self._read, theta, x, at_once=self._runs_at_once)

    def _derivatives(
        self, of: Callable, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> np.ndarray:
        with self._running():
            found = [np.zeros([len(theta), 3, 0])]
            for each, points, part in self._parts(theta):
                found.append(each.derivatives(of, points, mean[:, part], variance[:, part]))
            return np.concatenate(found, 2)

    def _parts(self, theta: np.ndarray) -> Iterator[tuple[Likelihood, Callable, slice]]:
        """Yield each likelihood, its observations by points, and its part of the predictors."""
        start = 0
        for index, each in enumerate(self._likelihoods):
            stop = start + each.first.size
            yield each, partial(self._observation, index, theta), slice(start, stop)
            start = stop

    def _observation(self, index: int, theta: np.ndarray, points: slice) -> Observation:
        """Return an observation at some points."""
        likelihood = self._likelihoods[index]
        if not likelihood.joins:
            (point,) = theta[points]
            return self._run(self._tensor(point), torch.zeros(self.size, device=self.device))[index]
        kept = self._certain(theta[points])
        stacks = zip(*(each[index] for each in kept), strict=True)
        return likelihood.first.at_points([torch.stack(parts) for parts in stacks])

    def _certain(self, theta: np.ndarray) -> list[Certain]:
        """Return the certain parameters of each site at each point."""
        new = [point for point in theta if point.tobytes() not in self._kept]
        if new:
            if len(self._kept) > KEPT:
                self._kept.clear()
                new = [*theta]
            with torch.no_grad():
                points = self._tensor(np.stack(new))
                _, certain = self._runs(
                    points, torch.zeros(len(new), self.size, device=self.device)
                )
            for index, point in enumerate(new):
                self._kept[point.tobytes()] = [[part[index] for part in site] for site in certain]
        return [self._kept[point.tobytes()] for point in theta]

    @cached_property
    def _trial(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two generic points and fields."""
        generator = np.random.default_rng(0)
        point = 0.3 * generator.normal(size=nested.size_of(self.values.unconstrained))
        points = np.stack([point, point + 0.37])
        return self._tensor(points), self._tensor(generator.normal(size=(2, self.size)))

    @cached_property
    def _likelihoods(self) -> list[Likelihood]:
        """Return the likelihoods."""
        with torch.no_grad():
            runs = [self._run(*pair) for pair in zip(*self._trial, strict=True)]
            return [Likelihood.of(*points) for points in zip(*runs, strict=True)]

    @cached_property
    def _runs_at_once(self) -> bool:
        """Return whether a run of several points gives what a run of each gives."""
        with torch.no_grad():
            pair = [
                tree_leaves(self._at_points(self._read, *self._trial, at_once=at_once))
                for at_once in (True, False)
            ]
        return all(
            torch.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)
            for one, other in zip(*pair, strict=True)
        )

    def _at_points(self, function: Callable, *points: torch.Tensor, at_once: bool = True) -> Any:
        """Return a function at each point, with its graph: by vmap, or one by one if that fails."""
        values = {str(index): part for index, part in enumerate(points)}
        count, name = len(points[0]), function.__name__
        size = count if at_once else 1
        run = self._ways.get((name, at_once)) or runner(
            lambda parts: function(*parts.values()), values, size
        )
        if count > 1:
            self._ways[name, at_once] = run
        return run(values, count)


def _quartiles(fn: Any, transform: Any, shape: Sequence[int], device: torch.device) -> Any:
    """Return quartiles of a prior, unconstrained, by its own or by draws; zeros without either."""
    levels = torch.tensor([0.25, 0.5, 0.75], device=device)
    if not shape:  # the same as in NumPyro
        with contextlib.suppress(NotImplementedError):
            return transform.inv(fn.icdf(levels))
    try:
        draws = fn.sample((DRAWS,))
    except NotImplementedError:  # of improper priors
        return torch.zeros(3, *shape, device=device)
    return torch.quantile(transform.inv(draws), levels, 0)


def _products(rows: np.ndarray, vector: torch.Tensor, by: torch.Tensor) -> np.ndarray:
    """Return rows [k, d], the same for all points, times the Jacobian of a vector [g d]."""
    products = JacobianProducts().times(np.tile(rows, len(by)), vector, [by])
    return products.reshape(len(rows), *by.shape).swapaxes(0, 1)


def _device(sites: Mapping[str, Any]) -> torch.device:
    return next(iter(sites.values()))["value"].device


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64, device=device)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
