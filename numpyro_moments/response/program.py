"""A NumPyro program at trained parameters, and its derivatives by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import Transform
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from numpyro.primitives import Messenger

from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Propagation
from moment_inference import (
    WITHOUT_NOISE,
    ParameterArray,
    Quantity,
    Tree,
    check_parameters,
    unknown_site,
)
from moment_inference.objectives import described
from moment_inference.optimisation import DeterministicLoss, minimiser, scale_by, trainings
from moment_inference.response import Data
from numpyro_moments.draws.model import NumPyroModel
from numpyro_moments.evaluation.arguments import Precision, in_jax
from numpyro_moments.evaluation.programs import compiled_for
from numpyro_moments.evaluation.small_operations import small_operations_by_numpy
from numpyro_moments.fitting.flat_loss import FlatLoss, locations_by_scale
from numpyro_moments.fitting.storing import parameters_of, sampled_sites
from numpyro_moments.likelihoods.structure import random_leaves, random_parameters, stripped
from numpyro_moments.objectives.base import Program
from numpyro_moments.prediction.predict import Prediction, prediction_at, sites_to_predict
from numpyro_moments.response.priors import ShiftPriors, prior_parameters
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.subsamples import DrawnSubsamples
from numpyro_moments.sites.terms import mixes_elements
from numpyro_moments.sites.traces import Traces, is_factor, is_function_of_sites, moment_traces
from numpyro_moments.svi import SVI

RUNS = 64  # for which products with a Jacobian are compiled
QUANTITY = "_quantity"  # the deterministic site that holds a function of the others


class LinearisedTree:
    """The arrays of a function of the parameters, as one vector."""

    def __init__(
        self, tree: Callable[[jax.Array], Tree], flat: jax.Array, precision: Precision
    ) -> None:
        self._tree, self._flat, self._precision = tree, flat, precision
        self._compiled = dict[tuple, Callable]()

    def _at(self, flat: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(self._tree(flat))
        return jnp.concatenate([jnp.zeros(0), *map(jnp.ravel, leaves)])

    @cached_property
    def value(self) -> np.ndarray:
        """Return the vector at the parameters."""
        with self._precision():
            return np.asarray(compiled_for(self._at, self._flat, runs=RUNS)(self._flat), np.float64)

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times the Jacobian, [k, n]."""
        return self._run("vjp", self._pull, rows)

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times the transposed Jacobian, [k, d]."""
        return self._run("jvp", self._push, rows)

    def _run(self, name: str, function: Callable, rows: np.ndarray) -> np.ndarray:
        with self._precision():
            given = jnp.asarray(rows, self._flat.dtype)
            key = name, given.shape
            if key not in self._compiled:
                self._compiled[key] = compiled_for(function, self._flat, given, runs=RUNS)
            return np.asarray(self._compiled[key](self._flat, given), np.float64)

    def _pull(self, flat: jax.Array, rows: jax.Array) -> jax.Array:
        return jax.vmap(jax.vjp(self._at, flat)[1])(rows)[0]

    def _push(self, flat: jax.Array, rows: jax.Array) -> jax.Array:
        return jax.vmap(jax.linearize(self._at, flat)[1])(rows)


class _WithQuantity:
    """A model with one more deterministic site: a function of its sites."""

    def __init__(self, model: Callable, function: Callable) -> None:
        self.model, self.function = model, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, and record the function of its sites."""
        with handlers.trace() as sites:
            result = self.model(*args, **kwargs)
        values = {
            name: site["value"]
            for name, site in sites.items()
            if site["type"] == "deterministic"
            or (site["type"] == "sample" and not site["is_observed"])
        }
        numpyro.deterministic(QUANTITY, self.function(values))
        return result


class PerturbedLoss:
    """The loss of a program that is changed by numbers, zero for the program itself."""

    def __init__(
        self,
        loss: Callable[[jax.Array, dict[Any, jax.Array]], jax.Array],
        shapes: Mapping[Any, tuple[int, ...]],
        flat: jax.Array,
        precision: Precision,
    ) -> None:
        self._loss, self._shapes, self._flat, self._precision = loss, shapes, flat, precision

    def mixed_derivative(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """Return derivatives by the numbers of the slope along directions [k, n]."""
        with self._precision():
            found = self._along(self._flat, jnp.asarray(rows, self._flat.dtype))
            pairs = zip(self._shapes, found, strict=True)
            return {key: np.asarray(part, np.float64) for key, part in pairs}

    @cached_property
    def _along(self) -> Callable:
        def mixed_derivative(flat: jax.Array, row: jax.Array) -> Any:
            def slope(numbers: list[jax.Array]) -> jax.Array:
                by_key = dict(zip(self._shapes, numbers, strict=True))
                return jax.jvp(lambda at: self._loss(at, by_key), (flat,), (row,))[1]

            return jax.grad(slope)([*map(jnp.zeros, self._shapes.values())])

        return jax.jit(jax.vmap(mixed_derivative, in_axes=(None, 0)))


class _WeightData(Messenger):
    """Handler that weights observed sites, and latent sites of a datum."""

    def __init__(self, fn: Callable, data: Data, weights: jax.Array) -> None:
        super().__init__(fn)
        self.data, self.weights = data, weights

    def process_message(self, msg: Any) -> None:
        """Scale a site."""
        if msg["type"] != "sample":
            return
        shape = self.data.weight_shape(msg["name"], msg)
        if shape is not None:
            scale_by(msg, self.weights.reshape(shape))


@dataclass(eq=False)
class TrainedProgram:
    """Model, guide, arguments and objective at trained parameters."""

    precision: Precision
    loss: FlatLoss
    flat: jax.Array  # the unconstrained parameters
    unravel: Callable[[jax.Array], dict[str, Any]]

    @classmethod
    def of(
        cls,
        program: Program,
        objective: ELBO | None = None,
        float64: bool = False,
    ) -> TrainedProgram:
        """Return a program at its trained parameters."""
        model, guide, *given = program
        precision = Precision.of(program.parameters, float64)
        with precision(), small_operations_by_numpy():
            svi = SVI(model, guide, Adam(1.0), loss=objective)
            args, kwargs, params = in_jax(tuple(given), precision.double)
            known = trainings.flattened(parameters_of(model, guide, args, kwargs))
            # Others may be of auxiliary sites, or of a module that this model does not use.
            check_parameters(trainings.flattened(params), known, further=True)
            with DrawnSubsamples() as drawn:
                state = svi.init(jax.random.key(0), *args, init_params=params, **kwargs)
            if state.mutable_state is not None:
                raise ValueError(
                    "mutable state (batch statistics) is no parameter: evaluate the module with "
                    "its running averages"
                )
            program = Program(model, guide, args, kwargs, params)
            loss = FlatLoss.of(svi, program, state.rng_key)
            unconstrained = svi.optim.get_params(state.optim_state)
            remedy = f"{WITHOUT_NOISE}; this one is of {described(svi.loss)}"
            minimiser.check_no_subsample(drawn.plates, remedy)
            minimiser.check_deterministic(*loss.two_values(unconstrained), remedy)
            return cls(precision, loss, *ravel_pytree(unconstrained))

    @property
    def program(self) -> Program:
        """Return the program that the loss is of."""
        return self.loss.program

    def _changed(self, **parts: Any) -> TrainedProgram:
        return replace(self, loss=replace(self.loss, program=self.program._replace(**parts)))

    @cached_property
    def objective(self) -> DeterministicLoss:
        """Return the loss of the flat parameters."""
        with self.precision():
            return self.loss.objective(self.flat, self.unravel).within(self.precision)

    def in_double(self) -> TrainedProgram:
        """Return the program in double precision."""
        return self.of(self.program, self.loss.elbo, True)

    @cached_property
    def parameters(self) -> np.ndarray:
        """Return the parameters as one vector."""
        return np.asarray(self.flat, np.float64)

    @cached_property
    def leaves(self) -> list[ParameterArray]:
        """Return the parameters in order, each scale with the name of its location."""
        params = self.unravel(self.flat)
        pairs = locations_by_scale(params)
        sizes = {
            name: sum(int(np.size(part)) for part in jax.tree.leaves(params[name]))
            for name in sorted(params)  # the order in which JAX flattens dictionaries
        }
        return [ParameterArray(name, size, pairs.get(name)) for name, size in sizes.items()]

    @cached_property
    def sites(self) -> dict[str, dict]:
        """Return the ``sample`` sites of the model."""
        with self.precision():
            return sampled_sites(*self.program.of_model)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Open the context with the precision of the parameters, without small compilations."""
        with self.precision(), small_operations_by_numpy():
            yield

    def evaluation(self) -> Any:
        """Return the context with the precision of the parameters."""
        return self.precision()

    def array(self, values: Any) -> jax.Array:
        """Return numbers as a JAX array in the precision of the parameters."""
        with self.precision():
            return jnp.asarray(values, self.flat.dtype)

    def _at(self, flat: jax.Array) -> TrainedProgram:
        return replace(self, flat=flat)

    def linearised(self, function: Callable[[TrainedProgram], Tree]) -> LinearisedTree:
        """Return what a function makes of the program, as one vector, by the parameters."""
        return LinearisedTree(lambda flat: function(self._at(flat)), self.flat, self.precision)

    def structure(
        self, function: Callable[[TrainedProgram], Tree]
    ) -> tuple[list[tuple[int, ...]], Callable[[list[Any]], Tree]]:
        """Return the shapes of a function's arrays, and what arranges one item for each alike."""
        shapes = jax.eval_shape(lambda flat: function(self._at(flat)), self.flat)
        leaves, tree = jax.tree.flatten(shapes)
        return [leaf.shape for leaf in leaves], lambda parts: jax.tree.unflatten(tree, parts)

    def perturbed(
        self,
        shapes: Mapping[Any, tuple[int, ...]],
        change: Callable[[TrainedProgram, Mapping], TrainedProgram],
    ) -> PerturbedLoss:
        """Return the perturbation by numbers of these shapes."""

        def loss(flat: jax.Array, numbers: dict[Any, jax.Array]) -> jax.Array:
            return change(self, numbers).loss.loss(self.unravel(flat), self.loss.key)

        return PerturbedLoss(loss, shapes, self.flat, self.precision)

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in the objective."""
        return getattr(self.loss.elbo, "propagation", None) or propagation_of(None, "exact")

    def _with_arguments(self, args: tuple, kwargs: Mapping[str, Any]) -> Program:
        """Return the program with other arguments, in its precision; with none as it is."""
        if not args and not kwargs:
            return self.program
        given = in_jax((args, dict(kwargs)), self.precision.double)
        return self.program._replace(args=given[0], kwargs=given[1])

    def _traces(
        self, model: Callable | None, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Traces:
        """Return the traces of the guide and a model, with moments for the latent sites."""
        params = self.loss.constrain(self.unravel(self.flat))
        _, guide, args, kwargs, _ = self._with_arguments(args, kwargs or {})
        call = model, guide, args, kwargs, params, jax.random.key(0), self.propagation
        return moment_traces(*call, predicting=True)

    def guide_sites(self) -> dict[str, dict]:
        """Return the sites that the guide samples itself, not as functions of others."""
        sites = self._traces(None).guide.items()
        return {name: site for name, site in sites if not is_function_of_sites(site)}

    def latent_values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of latent sites, from the guide alone."""
        guide = self._traces(None).guide
        return {name: guide[name]["value"] for name in names}

    def expectation(self, of: Quantity, args: tuple, kwargs: Mapping[str, Any]) -> Tree:
        """Return the means of a site, or of a function of sites."""
        if callable(of):
            model = _WithQuantity(self.program.model, of)
            return _means(self._traces(model, args, kwargs).model[QUANTITY]["value"])
        sites = self._traces(self.program.model, args, kwargs).model
        if of not in sites:
            raise unknown_site(of, sites)
        if sites[of]["type"] == "sample" and sites[of]["is_observed"]:
            return Prediction(of, sites[of]["fn"]).mean
        return _means(sites[of]["value"])

    def sites_to_predict(self, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, dict]:
        """Return the sites that are neither latent nor factors, with moments."""
        return sites_to_predict(self._traces(self.program.model, args, kwargs))

    def random_parameters(self, site: dict) -> list[tuple[Any, int]]:
        """Return the random values behind a site, and how many axes are of one element."""
        if site["type"] == "sample":
            return random_parameters(stripped(site["fn"]))
        return [(value, min(len(value.shape), 1)) for value in random_leaves(site["value"])]

    def prediction(self, name: str, site: dict, values: Sequence[Any]) -> Any:
        """Return the prediction of a site, with these for its random values."""
        part, given = "fn" if site["type"] == "sample" else "value", iter(values)
        tree = stripped(site["fn"]) if part == "fn" else site["value"]
        exchange = lambda leaf: next(given) if is_random(leaf) else leaf  # noqa: E731
        return prediction_at(name, {**site, part: jax.tree.map(exchange, tree, is_leaf=is_random)})

    def transform(self, site: dict) -> Any:
        """Return the bijection from the unconstrained space to a site's support."""
        return biject_to(site["fn"].support)

    def slope(self, function: Callable, points: jax.Array) -> jax.Array:
        """Return the derivative of an elementwise function."""
        return jax.jvp(function, (points,), (jnp.ones_like(points),))[1]

    def mixes_elements(self, to_support: Any) -> bool:
        """Return whether a function of coordinates is a transform that mixes them."""
        return isinstance(to_support, Transform) and mixes_elements(to_support)

    def is_factor(self, site: dict) -> bool:
        """Return whether a site observes nothing."""
        return is_factor(site)

    def reweighted(self, data: Data, weights: jax.Array) -> TrainedProgram:
        """Return the program with weights of its data."""
        model, guide, *_ = self.program
        guide = _WeightData(guide, data, weights) if data.local_latents else guide
        model = _WeightData(model, data, weights)
        return self._changed(model=model, guide=guide)

    def prior_parameters(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Return the shapes of the priors' parameters that depend on no site."""
        model, args, kwargs = self.program.of_model
        return prior_parameters(model, self.sites, args, kwargs)

    def with_priors(self, numbers: Mapping[tuple[str, str], jax.Array]) -> TrainedProgram:
        """Return the program with numbers added to the parameters of its priors."""
        return self._changed(model=ShiftPriors(self.program.model, numbers))

    def with_draws(
        self, first: Mapping[str, np.ndarray], args: tuple, kwargs: Mapping[str, Any]
    ) -> NumPyroModel:
        """Return the model that runs with draws of its latent sites."""
        program = self._with_arguments(args, kwargs)
        return NumPyroModel(program, first, self.precision, jax.random.key(0))


def _means(values: Tree) -> Tree:
    """Return the means of live values in dictionaries and tuples."""
    mean = lambda value: value.gaussian().mean if is_random(value) else jnp.asarray(value)  # noqa: E731
    return jax.tree.map(mean, values, is_leaf=is_random)
