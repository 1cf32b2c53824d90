"""A NumPyro model given its hyperparameters: densities, linear predictors and likelihoods."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.util import not_jax_tracer

from moment_inference import nested
from numpyro_moments.draws.model import log_density
from numpyro_moments.evaluation.arguments import Precision, apart
from numpyro_moments.evaluation.programs import Programs
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.fitting.storing import sampled_sites
from numpyro_moments.likelihoods.expected import (
    EXPECTED_LOG_PROB,
    UNIVARIATE,
    included,
    on_arrays,
    shape_with,
)
from numpyro_moments.likelihoods.structure import copied, random_leaves, restored
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.traces import is_latent, moment_traces

DRAWS = 101  # of a prior, whose quartiles are where searches begin
BLOCK, LEAST = 16, 4  # most and fewest points of the hyperparameters that one program takes
NUMBERS = 2**15  # about as many predictors, of all points together


@dataclass(frozen=True, eq=False)
class NestedModel:
    """A model with its arguments, of which some sites can be hyperparameters."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    precision: Precision

    @cached_property
    def sites(self) -> dict[str, dict]:
        """Return the ``sample`` sites of a run of the model."""
        with self.precision():
            return sampled_sites(_WholePlates(self.model), self.args, self.kwargs)

    @cached_property
    def latent(self) -> dict[str, nested.Latent]:
        """Return the latent sites."""
        with self.precision():
            return {name: _latent(site) for name, site in self.sites.items() if is_latent(site)}

    def transform(self, name: str) -> nested.Transform | None:
        """Return the function from the unconstrained space to a site's support, elementwise."""
        own = biject_to(self.sites[name]["fn"].support)
        while hasattr(own, "base_transform"):  # of elements that are independent events
            own = own.base_transform
        if own.domain.event_dim:
            return None
        as_array = lambda function: lambda x: self._computed(function, x)  # noqa: E731
        slope = lambda x: own.log_abs_det_jacobian(x, own(x))  # noqa: E731
        return nested.Transform(*map(as_array, (own, own.inv, slope)))

    def _computed(self, function: Callable, x: np.ndarray) -> np.ndarray:
        with self.precision():
            return np.asarray(function(jnp.asarray(x)), np.float64)

    def values(self, names: Sequence[str], points: np.ndarray) -> dict[str, np.ndarray]:
        """Return sites on their supports, [count, ...], of unconstrained points."""
        constrained = nested.Values.of(self.sites, names, (), biject_to).constrained
        with self.precision():
            found = jax.vmap(constrained)(jnp.asarray(points))
            return {name: np.asarray(value, np.float64) for name, value in found.items()}

    def unconstrained(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the unconstrained point of sites on their supports, one after another."""
        with self.precision():
            points = [
                np.ravel(biject_to(self.sites[name]["fn"].support).inv(jnp.asarray(value)))
                for name, value in values.items()
            ]
        return np.concatenate([np.zeros(0), *points])

    def given(
        self, hyperparameters: Sequence[str], field: Sequence[str], likelihoods: Sequence[str]
    ) -> ConditionalModel:
        """Return the model given hyperparameters, with these observed sites as likelihoods."""
        parts = tuple(hyperparameters), tuple(field), tuple(likelihoods)
        program = self.model, self.args, self.kwargs, self.sites
        return ConditionalModel(*program, *parts, self.precision)


class _WholePlates(numpyro.primitives.Messenger):
    """Refuses plates that take some of their rows."""

    def process_message(self, msg: dict) -> None:
        """Raise for such a plate."""
        if msg["type"] == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            raise nested.subsampled(msg["name"], *msg["args"])


def _latent(site: dict) -> nested.Latent:
    support, shape = site["fn"].support, jnp.shape(site["value"])
    if site["fn"].is_discrete or support.is_discrete:
        raise nested.not_continuous(site["name"], type(site["fn"]).__name__)
    if not all(map(not_jax_tracer, jax.tree.leaves(support))):
        raise nested.moving_support(site["name"])
    transform = biject_to(support)
    unconstrained = transform.inverse_shape(shape)
    size = int(np.prod(unconstrained))
    is_real = getattr(support, "base_constraint", support) is constraints.real
    return nested.Latent(shape, size, is_real or nested.is_linear(transform, unconstrained))


class _Field:
    """A guide with a Normal of scale one for every site of the field."""

    def __init__(self, locations: Mapping[str, jax.Array], events: Mapping[str, int]) -> None:
        self.locations, self.events = locations, events

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Sample the sites."""
        for name, location in self.locations.items():
            numpyro.sample(name, dist.Normal(location, 1.0).to_event(self.events[name]))


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
    precision: Precision

    @cached_property
    def values(self) -> nested.Values:
        """Return where the sites are in the vectors."""
        return nested.Values.of(self.sites, self.hyperparameters, self.field, biject_to)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the field."""
        return self.values.size

    def prior_quartiles(self) -> np.ndarray:
        """Return quartiles of the hyperparameters' priors, unconstrained, given medians, [3, h]."""
        return self._run("_prior_quartiles", np.zeros((1, 1)))[0]

    def densities(self, theta: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the log densities of all sites at values [g, d] of the field, [g] each."""
        return self._run("_densities", theta, x)

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """Return log p of the hyperparameters on the unconstrained space, [g]."""
        return self._run("_log_prior", theta)

    def predictors(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the means of the predictors at means [g, d] of the field, [g, n]."""
        return self._run("_predictors", theta, x)

    def at_zero(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the quadratic part at zero [g], its slope [g, d], and the predictors [g, n]."""
        return self._run("_at_zero", theta)

    def curvature(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the precision of the quadratic part times directions [k, d], [g, k, d]."""
        return self._run("_curvature", theta, shared=directions)

    def slopes(self, theta: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the slopes of the predictors along directions [k, d], [g, k, n]."""
        return self._run("_slopes", theta, shared=directions)

    def expected(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return E f, E f′ and E f″ of the log likelihoods f of all observations, [g, 3, n]."""
        return self._run("_expected", theta, mean, variance)

    def higher(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the expected third, fourth and fifth derivatives of the same, [g, 3, n]."""
        return self._run("_higher", theta, mean, variance)

    def log_likelihoods(self, theta: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Return the log likelihoods f at predictors [g, m, n], [g, m, n]."""
        return self._run("_at_predictors", theta, eta)

    def _run(self, method: str, *points: np.ndarray, shared: Any = None) -> Any:
        """Return a method at each point, in blocks of one size, so that one program serves."""
        data, rest = apart((self.args, self.kwargs))

        def program(points: Any, shared: Any, data: list | None) -> Any:
            args, kwargs = (self.args, self.kwargs) if data is None else rest.joined(data)
            bound = getattr(replace(self, args=args, kwargs=kwargs), method)
            return jax.vmap(lambda each: bound(*each, *shared))(points)

        with self.precision():
            results, size = [], self._block
            further = () if shared is None else (np.asarray(shared),)
            for start in range(0, len(points[0]), size):
                block = tuple(_padded(each[start : start + size], size) for each in points)
                name = method, rest.structure
                results.append(self._programs.run_on(data, name, program, block, further))
            joined = jax.tree.map(lambda *parts: np.concatenate(parts), *results)
            return jax.tree.map(lambda part: part[: len(points[0])], joined)

    @cached_property
    def _block(self) -> int:
        """Return how many points one program takes: fewer of a large model."""
        sites = [site["value"] for site in self.sites.values()]
        return int(np.clip(NUMBERS // max(map(np.size, sites)), LEAST, BLOCK))

    @cached_property
    def _programs(self) -> Programs:
        rest = apart((self.args, self.kwargs))[1]
        parts = self.hyperparameters, self.field, self.likelihoods
        return Programs(ConditionalModel, self.model, rest.leaves, parts)

    def _prior_quartiles(self, _: jax.Array) -> jax.Array:
        found: dict[str, jax.Array] = {}

        def median(site: dict) -> Any:
            if site["name"] not in self.hyperparameters or site["type"] != "sample":
                return None
            transform = self.values.transforms[site["name"]]
            quartiles = _quartiles(site, transform, self.values.unconstrained[site["name"]])
            found[site["name"]] = quartiles.reshape(3, -1)
            return transform(quartiles[1])

        fields = self.values.of_field(jnp.zeros(self.size))
        model = handlers.substitute(handlers.seed(self.model, 0), data=fields)
        model = handlers.substitute(model, substitute_fn=median)
        handlers.trace(model).get_trace(*self.args, **self.kwargs)
        return jnp.concatenate([jnp.zeros((3, 0)), *(found[n] for n in self.hyperparameters)], 1)

    def _log_prior(self, theta: jax.Array) -> jax.Array:
        densities = self._densities(theta, jnp.zeros(self.size))
        own = [densities[name] for name in self.hyperparameters]
        return sum([*own, *self.values.log_jacobians(theta)], jnp.zeros(()))

    def _at_zero(self, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        zero = jnp.zeros(self.size)
        value, slope = jax.value_and_grad(lambda x: self._quadratic(theta, x))(zero)
        return value, slope, self._predictors(theta, zero)

    def _curvature(self, theta: jax.Array, directions: jax.Array) -> jax.Array:
        slope = jax.grad(lambda x: self._quadratic(theta, x))
        return -jax.vmap(jax.linearize(slope, jnp.zeros(self.size))[1])(directions)

    def _slopes(self, theta: jax.Array, directions: jax.Array) -> jax.Array:
        along = jax.linearize(lambda x: self._predictors(theta, x), jnp.zeros(self.size))[1]
        return jax.vmap(along)(directions)

    def _densities(self, theta: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
        values = self.values.at(theta, x)
        seeded = handlers.seed(handlers.substitute(self.model, data=values), 0)
        trace = handlers.trace(seeded).get_trace(*self.args, **self.kwargs)
        return {n: jnp.sum(log_density({n: s})) for n, s in trace.items() if s["type"] == "sample"}

    def _quadratic(self, theta: jax.Array, x: jax.Array) -> jax.Array:
        densities = self._densities(theta, x)
        left_out = (*self.hyperparameters, *self.likelihoods)
        kept = [density for name, density in densities.items() if name not in left_out]
        return sum([*kept, *self.values.field_log_jacobians(x)], jnp.zeros(()))

    def _observations(self, theta: jax.Array, x: jax.Array) -> list[Observation]:
        events = {name: self.sites[name]["fn"].event_dim for name in self.field}
        guide = _Field(self.values.of_field(x), events)
        model = handlers.condition(self.model, data=self.values.constrained(theta))
        call: Any = model, guide, self.args, self.kwargs, {}, jax.random.key(0), nested.PROPAGATION
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of covariances, which nobody reads here
            sites = moment_traces(*call, settles=False).model
        return [Observation.of(name, sites[name]) for name in self.likelihoods]

    def _predictors(self, theta: jax.Array, x: jax.Array) -> jax.Array:
        found = [each.predictor for each in self._observations(theta, x)]
        return jnp.concatenate([jnp.zeros(0), *map(jnp.ravel, found)])

    def _expected(self, theta: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
        return jnp.stack(_moments(self._log_likelihoods(theta), mean, variance))

    def _higher(self, theta: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
        return jnp.stack(_higher(self._log_likelihoods(theta), mean, variance))

    def _at_predictors(self, theta: jax.Array, eta: jax.Array) -> jax.Array:
        found = [jnp.zeros((len(eta), 0))]
        for each, part in self._parts(theta):
            found.append(jax.vmap(each.log_density)(eta[:, part]))
        return jnp.concatenate(found, 1)

    def _log_likelihoods(self, theta: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """Return E f of all observations as a function of the moments of their predictors."""
        parts = self._parts(theta)

        def expected(mean: jax.Array, variance: jax.Array) -> jax.Array:
            found = [each.expected(mean[part], variance[part]) for each, part in parts]
            return jnp.concatenate([jnp.zeros(0), *found])

        return expected

    def _parts(self, theta: jax.Array) -> list[tuple[Observation, slice]]:
        """Return the observations, each with its part of the predictors."""
        found = self._observations(theta, jnp.zeros(self.size))
        ends = itertools.accumulate(each.size for each in found)
        return [(each, slice(end - each.size, end)) for each, end in zip(found, ends, strict=True)]


@dataclass(frozen=True)
class Observation:
    """An observed site with the one Gaussian behind its parameters."""

    fn: Any  # of its elements
    value: Any
    weights: Any
    shape: tuple[int, ...]
    gaussian: Any

    @classmethod
    def of(cls, name: str, site: dict) -> Observation:
        """Return the observation of a site of a run with moments."""
        scale = 1.0 if site["scale"] is None else site["scale"]
        value = jnp.asarray(site["value"])
        fn, value, events, weights = WRAPPERS.elements(site["fn"], value, scale, included)
        shape = shape_with(site["fn"], site["value"])
        shape += tuple(site["fn"].event_shape[:events])
        gaussian = nested.predictor_of(name, type(fn).__name__, random_leaves(fn), shape)
        return cls(fn, value, jnp.broadcast_to(weights, shape), shape, gaussian)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self.shape))

    @property
    def predictor(self) -> jax.Array:
        """Return the mean of the predictor of each element."""
        return jnp.broadcast_to(self.gaussian.mean, self.shape)

    def expected(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Return the weighted E log p of each element [n], for moments of its predictor."""
        mean, variance = (jnp.reshape(part, self.shape) for part in (mean, variance))
        predictor = nested.independent(mean, variance, self.gaussian)
        fn = self._with_leaves(lambda leaf: nested.with_predictor(leaf, predictor))
        rule = EXPECTED_LOG_PROB.function_for(fn) or UNIVARIATE.expected
        found = jnp.broadcast_to(rule(on_arrays(fn), self.value), self.shape)
        return self._weighted(found)

    def log_density(self, predictor: jax.Array) -> jax.Array:
        """Return the weighted log p of each element [n], for values of its predictor."""
        values = jnp.reshape(predictor, self.shape)
        fn = restored(self._with_leaves(lambda leaf: nested.value_at(leaf, values)))
        return self._weighted(jnp.broadcast_to(on_arrays(fn).log_prob(self.value), self.shape))

    def _with_leaves(self, replaced: Callable[[Any], Any]) -> Any:
        """Return the distribution with other values in place of the random ones."""
        replace = lambda leaf: replaced(leaf) if is_random(leaf) else leaf  # noqa: E731
        fn = copied(jax.tree.map(replace, self.fn, is_leaf=is_random))
        fn._batch_shape = self.shape
        return fn

    def _weighted(self, found: jax.Array) -> jax.Array:
        return jnp.ravel(jnp.where(self.weights == 0, 0.0, self.weights * found))


def _quartiles(site: dict, transform: Any, shape: tuple[int, ...]) -> jax.Array:
    """Return quartiles of a prior, unconstrained, by its own or by draws; zeros without either."""
    levels = jnp.array([0.25, 0.5, 0.75])
    if not shape:  # the same as in Pyro
        with contextlib.suppress(NotImplementedError, ImportError):
            return transform.inv(site["fn"].icdf(levels))
    try:
        draws = site["fn"].sample(site["kwargs"]["rng_key"], (DRAWS,))
    except NotImplementedError:  # of improper priors
        return jnp.zeros((3, *shape))
    return jnp.quantile(transform.inv(draws), levels, axis=0)


def _moments(
    function: Callable[[jax.Array, jax.Array], jax.Array], mean: jax.Array, variance: jax.Array
) -> list[jax.Array]:
    """Return E f, E f′ and E f″ of an elementwise E f by the mean and the variance."""
    ones, zeros = jnp.ones_like(mean), jnp.zeros_like(mean)
    push = jax.linearize(function, mean, variance)
    return [push[0], push[1](ones, zeros), 2 * push[1](zeros, ones)]


def _higher(
    function: Callable[[jax.Array, jax.Array], jax.Array], mean: jax.Array, variance: jax.Array
) -> list[jax.Array]:
    """Return E f‴ to the fifth derivative, the derivatives by the variance being ½ E f″."""

    def second(mean: jax.Array, variance: jax.Array) -> jax.Array:
        along = lambda v: function(mean, v)  # noqa: E731
        return 2 * _slope(along, variance)

    def fourth(mean: jax.Array, variance: jax.Array) -> jax.Array:
        return 2 * _slope(lambda v: second(mean, v), variance)

    third = _slope(lambda m: second(m, variance), mean)
    return [third, fourth(mean, variance), _slope(lambda m: fourth(m, variance), mean)]


def _slope(function: Callable, at: jax.Array) -> jax.Array:
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]


def _padded(part: np.ndarray, size: int) -> np.ndarray:
    """Return points of one block, with the last one repeated up to its size."""
    missing = size - len(part)
    return np.concatenate([part, np.repeat(part[-1:], missing, 0)]) if missing else part
