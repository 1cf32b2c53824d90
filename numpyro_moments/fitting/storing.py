"""Save trained parameters to a file, load them, and tell files of NumPyro's models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus.numerics import one_thread_at_a_time, private_apis, to_numpy
from moment_calculus.rulebooks import RULEBOOKS
from moment_guides.numpyro import init_to_network
from moment_inference import FittingHost
from moment_inference.objectives import remembered
from moment_inference.optimisation import Fit, FitVerbs, batches, knows_sites, of_fit, trainings
from numpyro_moments._host import evaluate
from numpyro_moments.evaluation.arguments import Precision, apart, checked, in_jax, is_array
from numpyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from numpyro_moments.evaluation.uncertain_inputs import at_means
from numpyro_moments.objectives.alpha import BBAlphaELBO, RenyiELBO
from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.prediction.predict import predict
from numpyro_moments.sites.terms import without_wrappers
from numpyro_moments.sites.traces import bind, is_latent


def converted_batch(batch: Any, double: bool) -> Any:
    """Return a loader's batch with arrays of JAX, but for flags."""

    def array(part: Any) -> Any:
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return jnp.asarray(part) if is_number else in_jax(part, double)

    return jax.tree.map(array, batch)


def to_array(leaf: Any) -> np.ndarray | None:
    """Return an array of JAX as one of NumPy; None for what is neither."""
    return np.asarray(leaf) if isinstance(leaf, jax.Array | np.ndarray) else None


class ArgumentShapes(NamedTuple):
    """Shapes of the arguments of a training, without the data."""

    args: tuple
    kwargs: dict[str, Any]

    def described(self, model: Callable, params: dict[str, Any]) -> trainings.Sites:
        """Return what a file knows of a model's sites; its constants depend on no argument."""
        with Precision.of(params)():
            try:
                return described(model, *self, only_shapes=True)
            except jax.errors.ConcretizationTypeError as error:
                raise ValueError(
                    "save cannot tell the model's sites from the shapes of its arguments, as the "
                    "model looks at their values: pass the arguments of the training, "
                    "save(path, model, result, *data)"
                ) from error


def sites_of_training(model: Callable, source: batches.AllData) -> ArgumentShapes:
    """Return what ``save`` needs of the arguments of a training to describe its sites."""
    shape = lambda part: jax.ShapeDtypeStruct(part.shape, part.dtype)  # noqa: E731
    return ArgumentShapes(
        *jax.tree.map(
            lambda part: shape(part) if is_array(part) else part,
            at_means(*batches.first_arguments(source)),
        )
    )


def described(
    model: Callable, args: tuple, kwargs: dict[str, Any], only_shapes: bool = False
) -> trainings.Sites:
    """Return what a file knows of a model's sites; constants move with no latent value."""
    sites: dict[str, dict] = {}
    arrays, static = apart((args, kwargs))
    model = _initialised(model)

    def run(arrays: list, given: dict[str, Any]) -> tuple[dict, dict]:
        args, kwargs = static.joined(arrays)
        trace = _initial_trace(handlers.substitute(model, data=given), args, kwargs)
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
    return trainings.signature_of(sites, without_wrappers), trainings.constants_of(
        sites, certain, known
    )


def certain_outputs(function: Callable, *shapes: Any) -> dict[str, dict[str, np.ndarray]]:
    """Return the outputs of a function that depend on none of its inputs."""
    program, outputs = jax.make_jaxpr(function, return_shape=True)(*shapes)
    result: dict[str, dict[str, np.ndarray]] = {name: {} for name in outputs}
    locations = jax.tree.leaves_with_path(outputs)
    for index, (path, _) in enumerate(locations):
        wanted = [location == index for location in range(len(locations))]
        part, used = private_apis.restricted(program.jaxpr, wanted)
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


def _initial_trace(model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, dict]:
    """Return the sites of a model, which takes no notice of handlers around."""
    with handlers.block():
        return handlers.trace(model).get_trace(*args, **kwargs)


def sampled_sites(model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, dict]:
    """Return a model's ``sample`` sites, from an abstract run."""
    trace = abstract_trace(_initialised(model), args, kwargs)
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


def density_text(model: Callable, args: tuple, kwargs: dict[str, Any], observed: bool) -> str:
    """Return a model's log density at a fixed start, as text."""
    trace = _initial_trace(_initialised(model), args, kwargs)
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    return trainings.density_as_text(sites, observed)


def _initialised(model: Callable) -> Callable:
    """Return a model whose latent sites start at the same values in every run."""

    def start(site: dict) -> Any:
        return init_to_network(site) if is_latent(site) else None

    return handlers.substitute(handlers.seed(model, 0), substitute_fn=start)


def abstract_trace(program: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, dict]:
    """Return the sites of a program that is traced without numbers."""
    sites: dict[str, dict] = {}

    def run() -> int:
        with handlers.block():
            sites.update(handlers.trace(program).get_trace(*args, **kwargs))
        return 0

    jax.eval_shape(run)
    return sites


class PriorReplacement(Messenger):
    """Handler that replaces the priors of latent sites by name."""

    def __init__(self, fn: Callable, priors: Mapping[str, Any]) -> None:
        super().__init__(fn)
        self.priors = priors

    def process_message(self, msg: Any) -> None:
        """Replace a prior."""
        if msg["type"] == "sample" and msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


HOST = FittingHost(
    objectives=remembered.KnownObjectives.of(
        "numpyro_moments", (BBAlphaELBO, DeterministicELBO, RenyiELBO), numpyro.infer, RULEBOOKS
    ),
    packages=("pyro-moments", "numpyro", "jax", "numpy"),
    random=None,  # programs are passed keys
    double_precision=lambda wanted: Precision(wanted)(),
    is_double=lambda: bool(jax.config.read("jax_enable_x64")),
    converted=in_jax,
    converted_batch=converted_batch,
    rows=lambda data, indices: jax.tree.map(lambda part: part[indices], data),
    leaves=jax.tree.leaves,
    to_array=to_array,
    sampled_sites=sampled_sites,
    with_priors=PriorReplacement,
    prior_arrays=lambda prior, model: model.priors,
    described=described,
    sites_of_training=sites_of_training,
    density_text=density_text,
    refuse_nonfinite_inputs=refuse_nonfinite_inputs,
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
        sites = described(model, data, named)
    elif isinstance(sites, ArgumentShapes):
        sites = sites.described(model, params)
    training = HOST.stored(guide, sites, objective)
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
    stored = HOST.stored(guide, described(model, data, named))
    tree = stored.read(path, require_checkpoint=False)
    arrays = {name: stored_array(part) for name, part in tree["parameters"].items()}
    bind(guide, model, arrays)
    with Precision.of(arrays)():
        made = parameters_of(model, guide, data, named)
        trainings.check_parameters(path, arrays, arrays_in(made))
        params = _filled(made, arrays)
        with handlers.block():  # the guide learns its sites
            handlers.substitute(handlers.seed(guide, 0), data=params)(*data, **named)
    objective = objective or HOST.objectives.objective(tree["objective"], path)
    return trainings.fit_of_file(tree, guide, params, objective).with_model(model, VERBS)


# The parameters go before the arguments: the first of these may be a dictionary, too.
def _predict(model: Callable, fit: Fit, *args: Any, **options: Any) -> dict[str, Any]:
    return predict(model, fit, fit.params, *args, **options)


def _save(path: str | PathLike[str], model: Callable, fit: Fit, *data: Any, **named: Any) -> None:
    save(path, model, fit, fit.params, *data, **named)


@one_thread_at_a_time
def _of_guide(fit: Fit, method: str, *args: Any) -> dict[str, Any]:
    with Precision.of(fit.params)():
        return getattr(fit.guide, method)(fit.params, *args)


VERBS = FitVerbs(_predict, _save, _of_guide, to_numpy)


def arrays_in(params: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays among parameters; those of modules have names like paths."""
    return {name: part for name, part in trainings.flattened(params).items() if is_array(part)}


def _filled(made: Any, stored: dict[str, Any], name: str = "") -> Any:
    """Return stored arrays in the form in which model and guide make them."""
    if isinstance(made, Mapping):
        inner = name and f"{name}/"
        return {key: _filled(part, stored, f"{inner}{key}") for key, part in made.items()}
    return stored.get(name, made)


def parameters_of(
    model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of guide and model, as abstract arrays."""
    guide_trace = abstract_trace(handlers.seed(guide, 0), args, kwargs)

    def program() -> Any:
        with handlers.block():
            inner = handlers.trace(handlers.seed(guide, 0)).get_trace(*args, **kwargs)
        return handlers.replay(handlers.seed(model, 0), inner)(*args, **kwargs)

    model_trace = abstract_trace(program, (), {})
    return {
        name: site["value"]
        for trace in (model_trace, guide_trace)
        for name, site in trace.items()
        if site["type"] in ("param", "mutable")
    }


def stored_array(array: np.ndarray) -> jax.Array:
    """Return an array of a file as a JAX array in its precision."""
    with jax.enable_x64(array.dtype.itemsize == 8):
        return jnp.asarray(array)
