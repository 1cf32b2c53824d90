"""Save trained parameters to a file, load them, and use them as a prior."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.numerics.one_thread import one_thread_at_a_time
from moment_calculus.numerics.private_apis import restricted
from moment_calculus.rulebooks import RULEBOOKS
from moment_guides.numpyro.latent_sites import init_to_network, is_latent
from moment_inference.objectives.remembered import KnownObjectives
from moment_inference.optimisation.batches import AllData, first_arguments
from moment_inference.optimisation.outcome import Fit, FitVerbs, knows_sites, of_fit
from moment_inference.optimisation.storage.trainings import (
    Sites,
    StoredTraining,
    check_parameters,
    constants_of,
    density_as_text,
    fill_course_from_dict,
    flattened,
    signature_of,
)
from moment_inference.optimisation.weighting import priors_from_fit
from numpyro_moments._host import evaluate
from numpyro_moments.evaluation.arguments import Precision, apart, checked, is_array
from numpyro_moments.evaluation.uncertain_inputs import at_means
from numpyro_moments.objectives.alpha import BBAlphaELBO, RenyiELBO
from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.prediction.predict import predict
from numpyro_moments.sites.terms import without_wrappers
from numpyro_moments.sites.traces import bind

# versions written into the header
PACKAGES = ("pyro-moments", "numpyro", "jax", "numpy")
OBJECTIVES = KnownObjectives.of(
    "numpyro_moments", (BBAlphaELBO, DeterministicELBO, RenyiELBO), numpyro.infer, RULEBOOKS
)


@checked
def save(
    path: str | PathLike[str],
    model: Callable,
    guide: Any,
    params: Any = None,
    *data: Any,
    **named: Any,
) -> None:
    """Write trained parameters into one file.

    The file holds the parameters as safetensors, and a header of JSON: the version of its
    format and of the libraries, the guide, and the model's sites with their distributions
    and shapes. Nothing in it is executed when it is loaded.

    Args:
        path: the file; an existing one is replaced atomically.
        model: the model.
        guide: the trained guide, or what ``fit`` returned.
        *data: arguments of model and guide, as in training; the model is run on them, to
            know its sites. What ``fit`` or ``load`` returned knows them, and needs none.
        **named: its keyword arguments.
        params: parameters by name, from ``svi.get_params``; ``save(path, model, result)``
            takes those of the fit ``result``.

    Raises:
        TypeError: if these are not a dictionary.

    Example:
        >>> save("network.safetensors", model, result)  # doctest: +SKIP
    """
    objective = guide.objective if isinstance(guide, Fit) else None
    sites = guide.sites if knows_sites(guide, params, data, named) else None
    guide, params, data = of_fit(guide, params, data)
    if not isinstance(params, dict):
        raise TypeError(
            "save(path, model, guide, params, *data) takes the trained parameters before the "
            f"data, a dictionary, got {type(params).__name__}"
        )
    if sites is None:
        sites = _described(model, data, named)
    elif isinstance(sites, ArgumentShapes):
        sites = sites.described(model, params)
    training = _stored(guide, sites, objective)
    training.write(path, {"parameters": arrays_in(params)}, {})


@checked
def load(
    path: str | PathLike[str],
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: Any = None,
    **named: Any,
) -> Fit:
    """Load trained parameters from a file of :func:`save` or a checkpoint of :func:`fit`.

    Args:
        path: the file.
        model: the model that it was trained with.
        guide: a guide of the same class, and with the same settings where the posterior
            has some beside its parameters (``p`` and ``noise`` of ``MCDropoutGuide``); it
            may be a new one.
        *data: arguments of model and guide: new inputs suffice for ``DVIGuide``; other
            guides also need the observations, because they treat unobserved sites as
            latent.
        objective: what it was trained by, where the file does not hold it: a class, or a rule
            book, of your own; by default what the file tells.
        **named: its keyword arguments.

    Returns:
        A fit with the guide, its parameters and its objective; for a checkpoint also its
        losses.

    Raises:
        FileNotFoundError: if there is no file.
        StoredFileError: if it is truncated, damaged, of another kind, of a newer version,
            or from another framework, guide or model, or if a constant of the model's
            distributions differs; the message names the cause and the remedy.

    Example:
        >>> result = load("network.safetensors", model, DVIGuide(), x)  # doctest: +SKIP
    """
    tree = stored_training(model, guide, data, named).read(path, require_checkpoint=False)
    arrays = {name: stored_array(part) for name, part in tree["parameters"].items()}
    bind(guide, model, arrays)
    use_float64 = any(part.dtype == np.float64 for part in arrays.values())
    with jax.enable_x64(True) if use_float64 else contextlib.nullcontext():
        made = parameters_of(model, guide, data, named)
        check_parameters(path, arrays, arrays_in(made))
        params = _filled(made, arrays)
        with handlers.block():  # the guide learns its sites
            handlers.substitute(handlers.seed(guide, 0), data=params)(*data, **named)
    objective = objective or OBJECTIVES.objective(tree["objective"], path)
    fit = Fit(guide=guide, params=params, seconds={}, objective=objective, sites=tree["sites"])
    if "course" in tree:
        fill_course_from_dict(fit, tree["course"])
    return fit.with_model(model, VERBS)


# The parameters go before the arguments: the first of these may be a dictionary, too.
def _predict(model: Callable, fit: Fit, *args: Any, **options: Any) -> dict[str, Any]:
    return predict(model, fit, fit.params, *args, **options)


def _save(path: str | PathLike[str], model: Callable, fit: Fit, *data: Any, **named: Any) -> None:
    save(path, model, fit, fit.params, *data, **named)


@one_thread_at_a_time
def _median(fit: Fit) -> dict[str, Any]:
    with Precision.of(fit.params)():
        return fit.guide.median(fit.params)


@one_thread_at_a_time
def _quantiles(fit: Fit, levels: Sequence[float]) -> dict[str, Any]:
    with Precision.of(fit.params)():
        return fit.guide.quantiles(fit.params, levels)


VERBS = FitVerbs(_predict, _save, _median, _quantiles, to_numpy)


def stored_training(
    model: Callable, guide: Callable, data: tuple, named: dict, objective: Any = None
) -> StoredTraining:
    """Return the reader and writer of a model and guide's files."""
    return _stored(guide, _described(model, data, named), objective)


def _stored(guide: Any, sites: Sites, objective: Any) -> StoredTraining:
    record = OBJECTIVES.record(objective)
    return StoredTraining("numpyro_moments", PACKAGES, guide, sites, _to_array, record)


class ArgumentShapes(NamedTuple):
    """Shapes of the arguments of a training, without the data."""

    data: tuple
    named: dict[str, Any]

    @classmethod
    def of(cls, source: AllData) -> ArgumentShapes:
        """Return those of the first step of a training."""
        shape = lambda part: jax.ShapeDtypeStruct(part.shape, part.dtype)  # noqa: E731
        return cls(
            *jax.tree.map(
                lambda part: shape(part) if is_array(part) else part,
                at_means(*first_arguments(source)),
            )
        )

    def described(self, model: Callable, params: dict[str, Any]) -> Sites:
        """Return what a file knows of a model's sites; its constants depend on no argument."""
        with Precision.of(params)():
            try:
                return _described(model, *self, only_shapes=True)
            except jax.errors.ConcretizationTypeError as error:
                raise ValueError(
                    "save cannot tell the model's sites from the shapes of its arguments, as the "
                    "model looks at their values: pass the arguments of the training, "
                    "save(path, model, result, *data)"
                ) from error


def _described(model: Callable, data: tuple, named: dict, only_shapes: bool = False) -> Sites:
    """Return what a file knows of a model's sites; constants move with no latent value."""
    sites: dict[str, dict] = {}
    arrays, static = apart((data, named))
    model = _initialised(model)

    def run(arrays: list, given: dict[str, Any]) -> tuple[dict, dict]:
        data, named = static.joined(arrays)
        trace = _initial_trace(handlers.substitute(model, data=given), data, named)
        sites.update({name: site for name, site in trace.items() if site["type"] == "sample"})
        free = {name: site["value"] for name, site in trace.items() if _is_free(site)}
        return free, {name: _raw_parameters(site["fn"]) for name, site in sites.items()}

    if only_shapes:
        free = jax.eval_shape(lambda arrays: run(arrays, {})[0], arrays)
        certain = certain_outputs(lambda *given: run(*given)[1], arrays, free)
    else:
        free = jax.eval_shape(lambda: run(arrays, {})[0])
        certain = certain_outputs(lambda given: run(arrays, given)[1], free)
    known = [] if only_shapes else [*map(np.asarray, arrays)]
    return signature_of(sites, without_wrappers), constants_of(sites, certain, known)


def certain_outputs(function: Callable, *shapes: Any) -> dict[str, dict[str, np.ndarray]]:
    """Return the outputs of a function that depend on none of its inputs."""
    program, outputs = jax.make_jaxpr(function, return_shape=True)(*shapes)
    result: dict[str, dict[str, np.ndarray]] = {name: {} for name in outputs}
    places = jax.tree.leaves_with_path(outputs)
    for index, (path, _) in enumerate(places):
        wanted = [place == index for place in range(len(places))]
        part, used = restricted(program.jaxpr, wanted)
        if not any(used):
            (value,) = evaluate(part, program.consts)
            result[path[0].key][path[1].key] = np.asarray(value)
    return result


def _is_free(site: dict) -> bool:
    return is_latent(site) or site["type"] in ("param", "mutable")


def _raw_parameters(fn: Any) -> dict[str, Any]:
    inner = without_wrappers(fn)
    values = {name: vars(inner).get(name) for name in getattr(inner, "arg_constraints", ())}
    return {
        name: value
        for name, value in values.items()
        if is_array(value) or isinstance(value, int | float)
    }


def _initial_trace(model: Callable, data: tuple, named: dict) -> dict[str, dict]:
    """Return the sites of a model, which takes no notice of handlers around."""
    with handlers.block():
        return handlers.trace(model).get_trace(*data, **named)


def sampled_sites(model: Callable, data: tuple, named: dict[str, Any]) -> dict[str, dict]:
    """Return a model's ``sample`` sites, from an abstract run."""
    trace = _abstract_trace(_initialised(model), data, named)
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


def density_text(model: Callable, data: tuple, named: dict[str, Any], observed: bool) -> str:
    """Return a model's log density at a fixed start, as text."""
    trace = _initial_trace(_initialised(model), data, named)
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    return density_as_text(sites, observed)


def _initialised(model: Callable) -> Callable:
    """Return a model whose latent sites start at the same values in every run."""

    def start(site: dict) -> Any:
        return init_to_network(site) if is_latent(site) else None

    return handlers.substitute(handlers.seed(model, 0), substitute_fn=start)


def arrays_in(params: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays among parameters; those of modules have names like paths."""
    return {name: part for name, part in flattened(params).items() if is_array(part)}


def _filled(made: Any, stored: dict[str, Any], name: str = "") -> Any:
    """Return stored arrays in the form in which model and guide make them."""
    if isinstance(made, Mapping):
        inner = name and f"{name}/"
        return {key: _filled(part, stored, f"{inner}{key}") for key, part in made.items()}
    return stored.get(name, made)


def parameters_of(
    model: Callable, guide: Callable, data: tuple, named: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of guide and model, as abstract arrays."""
    guide_trace = _abstract_trace(handlers.seed(guide, 0), data, named)

    def program() -> Any:
        with handlers.block():
            inner = handlers.trace(handlers.seed(guide, 0)).get_trace(*data, **named)
        return handlers.replay(handlers.seed(model, 0), inner)(*data, **named)

    model_trace = _abstract_trace(program, (), {})
    return {
        name: site["value"]
        for trace in (model_trace, guide_trace)
        for name, site in trace.items()
        if site["type"] in ("param", "mutable")
    }


def _abstract_trace(program: Callable, data: tuple, named: dict[str, Any]) -> dict[str, dict]:
    """Return the sites of a program that is traced without numbers."""
    sites: dict[str, dict] = {}

    def run() -> int:
        with handlers.block():
            sites.update(handlers.trace(program).get_trace(*data, **named))
        return 0

    jax.eval_shape(run)
    return sites


def stored_array(array: np.ndarray) -> jax.Array:
    """Return an array of a file as a JAX array in its precision."""
    with jax.enable_x64(array.dtype.itemsize == 8):
        return jnp.asarray(array)


def _to_array(leaf: Any) -> np.ndarray | None:
    return np.asarray(leaf) if isinstance(leaf, jax.Array | np.ndarray) else None


class PriorReplacement(Messenger):
    """Handler that replaces the priors of latent sites by name."""

    def __init__(self, fn: Callable, priors: dict[str, Any]) -> None:
        super().__init__(fn)
        self.priors = priors

    @property
    def arrays(self) -> list[Any]:
        """Return the parameters of the priors."""
        return jax.tree.leaves(self.priors)

    def process_message(self, msg: Any) -> None:
        """Replace a prior."""
        if msg["type"] == "sample" and msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


def with_prior(model: Callable, prior: Fit | None, source: AllData) -> Callable:
    """Return the model with an earlier posterior as the prior of its global sites."""
    if prior is None:
        return model
    return PriorReplacement(
        model, priors_from_fit(sampled_sites(model, *first_arguments(source)), prior)
    )
