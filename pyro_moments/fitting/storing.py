"""Save trained parameters to a file, load them, and tell files of Pyro's models."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np
import pyro
import pyro.infer
import torch
from pyro import poutine
from pyro.infer.autoguide.initialization import InitMessenger
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites

from moment_calculus.numerics import one_thread_at_a_time, to_numpy
from moment_calculus.rulebooks import RULEBOOKS
from moment_guides.pyro import init_to_network
from moment_inference import FittingHost
from moment_inference.objectives import remembered
from moment_inference.optimisation import Fit, FitVerbs, batches, knows_sites, trainings
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.evaluation.arguments import checked
from pyro_moments.evaluation.failure_causes import refuse_nonfinite_inputs
from pyro_moments.evaluation.uncertain_inputs import at_means
from pyro_moments.fitting.parameters import (
    Parameters,
    ParameterSnapshot,
    double_precision,
    has_float64,
    in_precision,
    new_parameters,
    parameters_to_float64,
    remember_fit,
    restore_parameters,
    to_dtype,
)
from pyro_moments.fitting.problem import RANDOM, random_state_restored
from pyro_moments.objectives.alpha import BBAlphaELBO, RenyiELBO
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.prediction.predict import predict
from pyro_moments.sites.terms import without_wrappers
from pyro_moments.sites.traces import bind


def described(model: Callable, args: tuple, kwargs: dict[str, Any]) -> trainings.Sites:
    """Return what a file knows of a model's sites."""
    sites = sampled_sites(model, args, kwargs, tracked=True)
    arrays = [array for array in map(to_array, tree_leaves((args, kwargs))) if array is not None]
    parameters = {name: _certain_parameters(site["fn"]) for name, site in sites.items()}
    return trainings.signature_of(sites, without_wrappers), trainings.constants_of(
        sites, parameters, arrays
    )


def sites_of_training(model: Callable, source: batches.AllData) -> trainings.Sites | None:
    """Return what a file knows of a model's sites; None if it cannot start at its priors."""
    # The training itself, which may begin elsewhere, raises and warns.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        return described(model, *at_means(*batches.first_arguments(source)))
    return None


def _certain_parameters(fn: Any) -> dict[str, np.ndarray]:
    """Return the parameters of a distribution that depend on no tracked value."""
    inner = without_wrappers(fn)
    values = {name: vars(inner).get(name) for name in getattr(inner, "arg_constraints", ())}
    return {
        name: value.cpu().numpy()
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and not value.requires_grad
    }


def sampled_sites(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    tracked: bool = False,  # whether gradients by latent values and parameters are tracked
) -> dict[str, Any]:
    """Return a model's ``sample`` sites, from a run without side effects."""
    initialised_model = InitMessenger(_tracked_value if tracked else _initial_value)(model)
    with (
        random_state_restored(),
        torch.set_grad_enabled(tracked),
        poutine.block(),
        pyro.get_param_store().scope(),
    ):
        trace = poutine.trace(initialised_model).get_trace(*args, **kwargs)
    return {
        name: site
        for name, site in prune_subsample_sites(trace).nodes.items()
        if site["type"] == "sample" and not (site["infer"] or {}).get("_deterministic")
    }


def density_text(model: Callable, args: tuple, kwargs: dict[str, Any], observed: bool) -> str:
    """Return a model's log density at a fixed start, as text."""
    with random_state_restored(), torch.no_grad():
        torch.manual_seed(0)
        return trainings.density_as_text(sampled_sites(model, args, kwargs), observed)


def _initial_value(site: dict) -> Any:
    """Return an initial value in the higher of the default precision and the prior's."""
    if site["fn"].support.is_discrete:
        return site["fn"].sample()
    value: Any = init_to_network(site)
    return _raised(value) if value.is_floating_point() else value


def _raised(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.promote_types(value.dtype, torch.get_default_dtype()))


def _tracked_value(site: dict) -> Any:
    """Return an initial value whose gradient is tracked."""
    value = _initial_value(site)
    return value.requires_grad_() if value.is_floating_point() else value


def to_array(leaf: Any) -> np.ndarray | None:
    """Return a tensor as an array; None for what is neither."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().numpy()
    return leaf if isinstance(leaf, np.ndarray) else None


class PriorReplacement(Messenger):
    """Handler that replaces the priors of latent sites by name."""

    def __init__(self, priors: Mapping[str, Any]) -> None:
        super().__init__()
        self.priors = priors

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.priors:
            msg["fn"] = self.priors[msg["name"]]


HOST = FittingHost(
    objectives=remembered.KnownObjectives.of(
        "pyro_moments", (BBAlphaELBO, DeterministicELBO, RenyiELBO), pyro.infer, RULEBOOKS
    ),
    packages=("pyro-moments", "pyro-ppl", "torch", "numpy"),
    random=RANDOM,
    double_precision=double_precision,
    is_double=lambda: torch.get_default_dtype() is torch.float64,
    converted=in_precision,
    converted_batch=in_precision,
    rows=lambda data, indices: tree_map(lambda part: part[indices], data),
    leaves=tree_leaves,
    to_array=to_array,
    sampled_sites=sampled_sites,
    with_priors=lambda model, priors: PriorReplacement(priors)(model),
    prior_arrays=lambda prior, model: prior.params,
    described=described,
    sites_of_training=sites_of_training,
    density_text=density_text,
    refuse_nonfinite_inputs=refuse_nonfinite_inputs,
)


@checked
def save(path: str | PathLike[str], model: Callable, guide: Any, *data: Any, **named: Any) -> None:
    """Write the trained parameters of model and guide into one file.

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

    Example:
        >>> save("network.safetensors", model, result)  # doctest: +SKIP
    """
    if isinstance(guide, Fit) and knows_sites(guide, None, data, named):
        training = HOST.stored(guide.guide, guide.sites, guide.objective)
        training.write(path, {"parameters": guide.context.unconstrained_copies()}, {})
        return
    context: Any = contextlib.nullcontext
    objective = None
    if isinstance(guide, Fit):
        guide, context, objective = guide.guide, guide.context, guide.objective
    with context(), double_precision(double := has_float64(guide)):
        args, kwargs = in_precision((data, named), double)
        with random_state_restored(), torch.no_grad():
            parameters = Parameters.from_run(lambda: _run(model, guide, args, kwargs))
        sites = described(model, args, kwargs)
    training = HOST.stored(guide, sites, objective)
    training.write(path, {"parameters": parameters.unconstrained_copies()}, {})


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
    arrays = tree["parameters"]
    bind(guide, model)
    if hasattr(guide, "restore"):
        guide.restore(arrays)
    double = any(array.dtype == np.float64 for array in arrays.values())
    args, kwargs = in_precision((data, named), double)
    run = lambda: _run(model, guide, args, kwargs)  # noqa: E731
    with (
        new_parameters(guide),
        random_state_restored(),
        torch.no_grad(),
        double_precision(double),
    ):
        if double:
            parameters_to_float64(run)
        parameters = Parameters.from_run(run)
        trainings.check_parameters(path, arrays, parameters.leaves)
        parameters.replace_data(arrays)
    params = parameters.constrained_copies()
    objective = objective or HOST.objectives.objective(tree["objective"], path)
    fit = trainings.fit_of_file(tree, guide, params, objective)
    fit.context = ParameterSnapshot(parameters, (model, guide))
    remember_fit(fit)
    return fit.with_model(model, VERBS)


@one_thread_at_a_time
def _of_guide(fit: Fit, method: str, *args: Any) -> dict[str, Any]:
    with fit.context(), torch.no_grad():
        return getattr(fit.guide, method)(*args)


VERBS = FitVerbs(predict, save, _of_guide, to_numpy)


def _run(model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Run guide and model once, which creates their parameters."""
    trace = poutine.trace(guide).get_trace(*args, **kwargs)
    poutine.block(poutine.replay(model, trace=trace), expose_types=["param"])(*args, **kwargs)


def leave_in_single(fit: Fit, model: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Leave guide and model in single precision where the model is; the fit keeps its doubles.

    The host's own functions run the model as it is, and its data meet draws of the guide.
    """
    leaves = fit.context.leaves
    before = [(leaf, leaf.data) for leaf in leaves if leaf.dtype is torch.float64]
    for leaf, values in before:
        leaf.data = values.float()
    if not _is_single(model, args, kwargs):
        restore_parameters(before)


def _is_single(model: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return whether a model draws singles, from its data or, of arrays made doubles, from such."""
    if not any(isinstance(part, torch.Tensor) for part in tree_leaves((args, kwargs))):
        return False  # also of a loader, whose rows are not known here
    for given in ((args, kwargs), to_dtype((args, kwargs), torch.float32)):
        try:
            sites = sampled_sites(model, *at_means(*given))
        except RuntimeError:  # tensors of two precisions
            continue
        return all(site["value"].dtype is not torch.float64 for site in sites.values())
    return False
