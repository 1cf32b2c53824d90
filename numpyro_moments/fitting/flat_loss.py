"""A NumPyro loss as a function of one flat vector of unconstrained parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI

from moment_calculus.numerics import private_apis
from moment_inference.objectives import starts
from moment_inference.optimisation import DeterministicLoss
from numpyro_moments._host import evaluate
from numpyro_moments.evaluation.arguments import Fixed, Static, apart
from numpyro_moments.evaluation.programs import LOOKS_AT_NUMBERS, Programs
from numpyro_moments.objectives.base import Program
from numpyro_moments.sites.held_terms import HeldTerms

# Bytes of Hessian products computed together; more would not fit the caches.
MAX_BATCH_BYTES = 1 << 27
EVALUATIONS, LINEARISATIONS = 256, 64  # that SciPy's methods may take, for what compiling is worth


@dataclass(frozen=True, eq=False)
class _Product:
    """The program of a Hessian-vector product, with constants that are the same everywhere."""

    jaxpr: Any
    constants: dict[int, jax.Array]  # by position
    data: dict[int, int]  # which of the data stands at a position

    def __call__(self, rest: list, data: list, direction: jax.Array) -> jax.Array:
        others, count = iter(rest), len(self.jaxpr.constvars)
        known = self.constants | {index: data[which] for index, which in self.data.items()}
        consts = [known[index] if index in known else next(others) for index in range(count)]
        return evaluate(self.jaxpr, consts, direction)[0]


@partial(jax.tree_util.register_dataclass, data_fields=["rest"], meta_fields=["product"])
@dataclass(frozen=True)
class _Linearisation:
    """What a product needs at a point beside the data; the program comes with its trace."""

    rest: list
    product: _Product


class Hessian:
    """Dense Hessian and Hessian-vector products of a function, from its gradient.

    The linearisation at a point is computed once; the last one is cached.
    """

    def __init__(
        self,
        gradient: Callable[..., jax.Array],  # of parameters [n] and data
        data: Sequence[jax.Array] = (),
        programs: Programs | None = None,
        name: Hashable = None,
    ) -> None:
        self.gradient, self.data, self.name = gradient, [*data], name
        self.programs = programs or Programs.alone()
        self._cache: tuple[bytes, _Linearisation] | None = None

    def product(self, point: jax.Array, direction: jax.Array) -> jax.Array:
        """Return the product of the Hessian at a point with a direction."""
        linearised = self._linearisation(point)
        name = "product", self.name
        return self.programs.run(name, self._product, linearised, direction, self.data)

    def dense(self, point: jax.Array) -> jax.Array:
        """Return the Hessian at a point."""
        linearised = self._linearisation(point)
        return self.programs.run(
            ("Hessian", self.name),
            self._products,
            linearised,
            point,
            self.data,
            runs=LINEARISATIONS,
        )

    def _linearisation(self, point: jax.Array) -> _Linearisation:
        key = point.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = None  # frees the memory before the next linearisation
            name = "linearised", self.name
            self._cache = (
                key,
                self.programs.run(name, self._linearise, point, self.data, runs=LINEARISATIONS),
            )
        return self._cache[1]

    def _linearise(self, point: jax.Array, data: list) -> _Linearisation:
        product = jax.linearize(lambda at: self.gradient(at, *data), point)[1]
        closed = jax.make_jaxpr(product)(point)
        numbers = {id(part): which for which, part in enumerate(data)}
        kept: dict[int, jax.Array] = {}
        given: dict[int, int] = {}
        rest = []
        for index, const in enumerate(closed.consts):
            if id(const) in numbers:
                given[index] = numbers[id(const)]
            elif private_apis.is_traced(const):
                rest.append(const)
            else:  # the same at each tracing, so that it does no harm to keep it
                kept[index] = const
        return _Linearisation(rest, _Product(closed.jaxpr, kept, given))

    @staticmethod
    def _product(linearised: _Linearisation, direction: jax.Array, data: list) -> jax.Array:
        return linearised.product(linearised.rest, data, direction)

    def _products(self, linearised: _Linearisation, point: jax.Array, data: list) -> jax.Array:
        """Return the dense Hessian, by products in batches that fit the caches."""
        size, product = point.size, linearised.product
        rounds = -(-size // max(1, MAX_BATCH_BYTES // self._bytes(product)))
        rows = jnp.arange(-(-size // rounds) * rounds).reshape(rounds, -1)  # padded

        def row(index: jax.Array) -> jax.Array:
            direction = jax.nn.one_hot(index, size, dtype=point.dtype)
            return product(linearised.rest, data, direction)

        return jax.lax.map(jax.vmap(row), rows).reshape(-1, size)[:size]

    def _bytes(self, product: _Product) -> int:
        """Return the bytes of all intermediate results of a product, never zero."""
        outputs = [output.aval for step in product.jaxpr.eqns for output in step.outvars]
        return 1 + sum(math.prod(output.shape) * output.dtype.itemsize for output in outputs)


@dataclass(frozen=True)
class FlatLoss:
    """The loss of a program as a function of its unconstrained parameters."""

    program: Program
    elbo: Any  # that is minimised
    constrain: Callable  # of unconstrained parameters, or the inverse
    key: Any
    runs: int = EVALUATIONS  # for which value and gradient are compiled

    @classmethod
    def of(cls, svi: SVI, program: Program, key: Any) -> FlatLoss:
        """Return the loss of an SVI that has started."""
        return cls(program, svi.loss, svi.constrain_fn, key)

    @cached_property
    def _data(self) -> tuple[list, Static | Fixed]:
        return apart(self.program[2:4])

    @cached_property
    def _inputs(self) -> list:
        """Return the data, and the held draws if there are any."""
        return [*self._data[0], *self._noise]

    @cached_property
    def _noise(self) -> list[jax.Array]:
        if not getattr(self.elbo, "held_draws", 0):
            return []
        held = HeldTerms(self.elbo, self.program, self.key)
        return [jnp.asarray(self.elbo.held_noise(*held.coordinates), jnp.result_type(float))]

    @cached_property
    def programs(self) -> Programs:
        """Return the compiled programs of this loss, with any data of the same shapes."""
        elbo = self.elbo.with_held(held_set=0) if self._noise else self.elbo
        return Programs(*self.program[:2], elbo, self.constrain, self._data[1].leaves)

    def loss(self, params: dict[str, Any], key: Any, arrays: list | None = None) -> jax.Array:
        """Return the loss of unconstrained parameters, of other data if given."""
        given = self._inputs if arrays is None else arrays
        own, noise = given[: len(self._data[0])], given[len(self._data[0]) :]
        args, kwargs = self._data[1].joined(own)
        program = self.program._replace(args=args, kwargs=kwargs, parameters=self.constrain(params))
        elbo = self.elbo.with_held(given_noise=noise[0]) if noise else self.elbo
        return program.loss(elbo, key)

    def two_values(self, params: dict[str, Any]) -> tuple[float, float]:
        """Return two values of the loss, which differ if it depends on the random key."""
        keys = jax.random.split(self.key)
        try:
            one, other = self._values(params, keys)
        except LOOKS_AT_NUMBERS:
            self.__dict__["_data"] = [], Fixed(self.program[2:4])
            for made in ("programs", "_inputs"):
                self.__dict__.pop(made)
            one, other = self._values(params, keys)
        return float(one), float(other)

    def _values(self, params: dict[str, Any], keys: Any) -> list[Any]:
        flat, unravel = ravel_pytree(params)
        name = self.name_of(params)
        return [self._value_and_grad(flat, unravel, key, name)[0] for key in keys]

    def name_of(self, params: Any) -> Hashable:
        """Return what programs depend on beside their owners: the structures of their arguments."""
        leaves, structure = jax.tree.flatten(params)
        return structure, tuple(map(jax.typeof, leaves)), self._data[1].structure

    def _value_and_grad(self, flat: Any, unravel: Callable, key: Any, name: Hashable) -> Any:
        function = jax.value_and_grad(lambda at, key, data: self.loss(unravel(at), key, data))
        name = "value and gradient", name
        return self.programs.run(name, function, flat, key, self._inputs, runs=self.runs)

    def objective(self, flat: jax.Array, unravel: Callable) -> DeterministicLoss:
        """Return the compiled objective for SciPy."""
        dtype, params = flat.dtype, unravel(flat)
        name, programs = self.name_of(params), self.programs
        slope = jax.grad(lambda x, key, *data: self.loss(unravel(x), key, [*data]))
        hessian = Hessian(slope, [self.key, *self._inputs], programs, name)
        units = lambda x: ravel_pytree(self._units(unravel(x)))[0]  # noqa: E731

        def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
            flat = jnp.asarray(point, dtype)
            value, gradient = self._value_and_grad(flat, unravel, self.key, name)
            return float(value), np.asarray(gradient, np.float64)

        def hessian_product(point: np.ndarray, direction: np.ndarray) -> np.ndarray:
            product = hessian.product(jnp.asarray(point, dtype), jnp.asarray(direction, dtype))
            return np.asarray(product, np.float64)

        return DeterministicLoss(
            value_and_gradient,
            lambda point: np.asarray(hessian.dense(jnp.asarray(point, dtype)), np.float64),
            hessian_product,
            lambda point: np.asarray(
                programs.run(("units", name), units, jnp.asarray(point, dtype)), np.float64
            ),
            float(jnp.finfo(dtype).eps),
            _scale_mask(params),
            self._gaussian(params),
            is_compiled=True,
        ).with_singles(_sizes(params), locations_by_scale(params))

    def _gaussian(self, params: dict[str, jax.Array]) -> Any:
        """Return where a guide with covariances has its parameters; None for others."""
        guide = self.program.guide
        if not hasattr(guide, "gaussian_parameters"):
            return None
        return guide.gaussian_parameters(_sizes(params))

    def _units(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return steps: a location's scale; for a scale, the change that moves its log by 1."""
        ones = jax.tree.map(jnp.ones_like, params)
        values, rates = jax.jvp(self.constrain, (params,), (ones,))
        units = dict(ones)
        for name, location in locations_by_scale(values).items():
            units |= {location: values[name], name: values[name] / rates[name]}
        return units


def multiplied_start(svi: SVI, params: dict[str, Any], factors: starts.Factors) -> dict[str, Any]:
    """Return unconstrained parameters with the scales of a guide and their locations multiplied."""
    values = svi.constrain_fn(params)
    for scale, location in locations_by_scale(values).items():
        values[scale] = values[scale] * factors.scales
        values[location] = values[location] * factors.locations
    return {**params, **svi.constrain_fn(values, invert=True)}


def _sizes(params: dict[str, Any]) -> dict[str, int]:
    """Return the sizes of parameters by name, in the order of their flat vector."""
    trees = {name: jax.tree.leaves(params[name]) for name in sorted(params)}
    return {name: sum(map(jnp.size, leaves)) for name, leaves in trees.items()}


def _scale_mask(params: dict[str, Any]) -> np.ndarray:
    """Return which components of the flat parameters belong to scales."""
    locations = locations_by_scale(params)

    return np.concatenate(
        [
            np.zeros(0, bool),
            *[np.full(size, name in locations) for name, size in _sizes(params).items()],
        ]
    )


def locations_by_scale(params: dict[str, Any]) -> dict[str, str]:
    """Return the location parameter's name by scale parameter, paired by suffix."""
    pairs = {name: f"{name.removesuffix('_scale')}_loc" for name in params}
    return {
        name: location
        for name, location in pairs.items()
        if name.endswith("_scale")
        and location in params
        and jnp.shape(params[location]) == jnp.shape(params[name])
    }
