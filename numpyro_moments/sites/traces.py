"""Run a guide and a model as NumPyro's ELBOs do, with moments in place of samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger
from numpyro.util import check_model_guide_match

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.values import PendingWeight, Propagation
from moment_inference import MaskedSite
from moment_inference.objectives import data_plates
from numpyro_moments._host import validate_model
from numpyro_moments.evaluation.failure_causes import UNDRAWN, observe
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.evaluation.refused import HoldingInterpreter
from numpyro_moments.evaluation.uncertain_inputs import Inputs, at_means, drawn, with_values
from numpyro_moments.likelihoods.structure import settled_parameters, stripped
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.messenger import (
    IMAGE_RULES,
    MomentMessenger,
    drawn_density,
    latent_input,
    latent_rule,
    model_site,
)
from numpyro_moments.sites.random_watch import (
    KeyMarker,
    check_no_silent_draws,
    noise_rule,
    with_noise,
)
from numpyro_moments.sites.terms import Site, without_wrappers


def bind(guide: Any, model: Any, params: dict[str, Any] | None = None) -> None:
    """Bind a guide to its model, and give it its trained parameters."""
    guide = unwrapped(guide)
    if hasattr(guide, "bind"):
        guide.bind(model)
        if params is not None:
            guide.restore(params)


def unwrapped(guide: Any) -> Any:
    """Return a guide without the handlers around it."""
    while not hasattr(guide, "bind") and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    return guide


class Part(NamedTuple):
    """A frame like NumPyro's of a plate around a site, which is part of a larger plate."""

    name: str
    dim: int  # axis among those of the batch, negative
    size: int
    full_size: int  # of the larger plate


def plates_of(site: dict, sizes: Mapping[str, int]) -> tuple[data_plates.Plate, ...]:
    """Return the plates around a site of a trace; ``sizes`` are full sizes by name."""
    plates = []
    for frame in site.get("cond_indep_stack", ()):
        full = frame.full_size if isinstance(frame, Part) else sizes.get(frame.name, frame.size)
        plates.append(data_plates.Plate(frame.name, frame.dim, frame.size, full))
    return tuple(plates)


def check_masked_rows(sites: Mapping[str, Site], latent: Collection[str]) -> None:
    """Raise for masks of rows that are no data; see :func:`.masked_rows.check_rows_are_data`."""
    values = {name: site["value"] for name, site in sites.items() if name in latent}
    drawn = {name: getattr(site.get("undrawn"), "site", None) for name, site in sites.items()}
    weights = {
        name: weight
        for name, value in values.items()
        for weight in (value, drawn[name])
        if isinstance(weight, PendingWeight | MaskedSite)
    }
    if not weights:
        return
    data = {
        name: data_plates.ObservedPlates(site["plates"], jnp.shape(site["value"]))
        for name, site in sites.items()
        if name not in latent and site["type"] == "sample" and not is_factor(site)
    }
    data_plates.check_rows_are_data(weights, data)


def is_latent(site: Any) -> bool:
    """Return whether a site of a trace is a latent one."""
    return site["type"] == "sample" and not site["is_observed"]


def is_factor(site: Any) -> bool:
    """Return whether a site is a ``numpyro.factor``, which predicts nothing."""
    return site["type"] == "sample" and isinstance(without_wrappers(site["fn"]), dist.Unit)


@dataclass(frozen=True)
class Traces:
    """The sites of guide and model by name, with moments for the latent sites."""

    model: dict[str, dict]  # each with fn, value, scale, type, is_observed and infer
    guide: dict[str, dict]
    mutable: dict[str, Any]  # new values of the mutable sites

    @classmethod
    def of(cls, guide: dict[str, dict], model: dict[str, dict]) -> Traces:
        """Separate the mutable sites from the others."""
        mutable = {
            name: site["value"]
            for name, site in {**guide, **model}.items()
            if site["type"] == "mutable"
        }
        kept_model, kept_guide = (
            {name: site for name, site in sites.items() if site["type"] != "mutable"}
            for sites in (model, guide)
        )
        return cls(kept_model, kept_guide, mutable)


class _Observables(Messenger):
    """Leaves sites without observations undrawn; their value is a placeholder of NaNs."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["value"] is None:
            msg["value"], msg["is_observed"] = (
                jax.numpy.full(msg["fn"].shape(), jax.numpy.nan),
                True,
            )
            msg["infer"] = {**(msg["infer"] or {}), UNDRAWN: True}


def observing(predicting: bool) -> Callable:
    """Return the model's handler; unobserved sites stay undrawn if predicting."""
    return _Observables if predicting else lambda model: model


def moment_traces(
    model: Callable | None,  # None: the guide alone
    guide: Callable,
    args: tuple,
    kwargs: dict,
    parameters: dict[str, Any],  # values of the param and mutable sites
    key: Any,  # draws subsamples and the sample_sites
    propagation: Propagation,
    sample_sites: Collection[str] = (),
    *,
    predicting: bool = False,  # whether sites without observations stay undrawn
    evaluator: Callable[..., Interpreter] = Interpreter,
    settles: bool = True,  # whether parameters get the covariances that are computed backwards
    holds: bool = False,  # whether refused operations have a result without moments
) -> Traces:
    """Run guide and model as NumPyro's ELBOs do, with moments in place of samples."""
    propagation = propagation.of_guide(unwrapped(guide))
    propagation = propagation.beside_draws() if holds else propagation
    messengers = partial(MomentMessenger, sample_sites=sample_sites), observing(predicting)
    program = model, guide, args, kwargs, parameters
    traced = trace_sites(*program, key, messengers, site_parts, latent_input)
    jaxpr = with_noise(traced.jaxpr, traced.keys[0])
    check_no_silent_draws(jaxpr.jaxpr, traced.certain_outputs(predicting))
    rules = {"latent": latent_rule(propagation), "noise": noise_rule(propagation), **IMAGE_RULES}
    evaluator = HoldingInterpreter if holds else evaluator
    interpreter = evaluator(rules, output_sites=_names(traced.shapes))
    guide_parts, model_parts = traced.parts(interpreter.run_closed(jaxpr, traced.keys))
    guide_sites, model_sites = (
        {name: {**sites[name], **part} for name, part in parts.items()}
        for sites, parts in zip(traced.sites, (guide_parts, model_parts), strict=True)
    )
    if sample_sites:
        _check_known(sample_sites, guide_sites)
    check_masked_rows(model_sites, guide_sites)
    if settles and propagation.may_sweep:
        settle(model_sites, guide_sites, holds)
    return Traces.of(guide_sites, model_sites)


def settle(sites: Mapping[str, dict], latent: Collection[str], holds: bool = False) -> None:
    """Give the parameters of sites that are not latent covariances that are computed backwards."""
    skipped = (UnsupportedMoments, AttributeError) if holds else ()
    for name, site in sites.items():
        if name not in latent and site["type"] == "sample":
            with suppress(*skipped):
                site["fn"] = settled_parameters(site["fn"])


class TracedSites(NamedTuple):
    """Guide and model as one program, whose outputs are the arrays of their sites."""

    jaxpr: Any
    shapes: Any  # of the outputs: parts by site, of the guide and of the model
    sites: list[dict[str, dict]]  # as they were traced, of the guide and of the model
    keys: tuple  # inputs of the program, for the model and for the guide

    def parts(self, outputs: Sequence[Any]) -> list[dict[str, dict]]:
        """Return the parts by site, of the guide and of the model."""
        return jax.tree.unflatten(jax.tree.structure(self.shapes), outputs)

    def certain_outputs(self, predicting: bool) -> set[int]:
        """Return the indices of the outputs that have to be certain, given the sites.

        For an ELBO these are all parts of the random variables. For predictions they are
        the parameters of the random variables, whose values (drawn by loops) are not
        used, and deterministic values.
        """
        start, indices = len(jax.tree.leaves(self.shapes[0])), set()
        for name in sorted(self.shapes[1]):
            sampled = self.sites[1][name]["type"] == "sample"
            for part, shapes in sorted(self.shapes[1][name].items()):
                size = len(jax.tree.leaves(shapes))
                if (sampled != (part == "value")) if predicting else sampled:
                    indices |= set(range(start, start + size))
                start += size
        return indices


def trace_sites(
    model: Callable | None,  # None: the guide alone
    guide: Callable,
    args: tuple,
    kwargs: dict,
    parameters: dict[str, Any],  # values of the param and mutable sites
    key: Any,
    messengers: tuple[Callable, Callable],  # outermost handlers of guide and model
    parts_of: Callable[[dict], dict],  # the arrays of a site
    inputs: Inputs | None = None,  # makes values of uncertain arguments; None draws them
) -> TracedSites:
    """Trace guide and model to one program."""
    sites: list[dict[str, dict]] = []

    def program(*keys: Any) -> Any:
        program = model, guide, args, kwargs, parameters
        sites[:] = host_traces(*program, keys, *messengers, inputs)
        return [{name: parts_of(site) for name, site in trace.items()} for trace in sites]

    keys = tuple(jax.random.split(key))
    jaxpr, shapes = jax.make_jaxpr(program, return_shape=True)(*keys)
    return TracedSites(jaxpr, shapes, sites, keys)


def host_traces(
    model: Callable | None,  # None: the guide alone
    guide: Callable,
    args: tuple,
    kwargs: dict,
    parameters: dict[str, Any],  # values of the param and mutable sites
    keys: Sequence[Any],  # of the model and of the guide
    guide_messenger: Callable,  # the outermost handler of the guide
    model_messenger: Callable,
    inputs: Inputs | None = None,  # makes values of uncertain arguments; None draws them
) -> tuple[dict, dict]:
    """Return the traces of guide and model, made as NumPyro's ``Trace_ELBO`` makes them.

    The guide gets the means of uncertain arguments.
    """

    def traced(program: Callable, arguments: tuple[tuple, dict]) -> dict:
        return handlers.trace(program).get_trace(*arguments[0], **arguments[1])

    model_key, guide_key = keys
    seeded = handlers.substitute(handlers.seed(guide, guide_key), data=parameters)
    guide_trace = traced(guide_messenger(seeded), at_means(args, kwargs))
    if model is None:
        return _kept(guide_trace), {}
    mutable = {n: site["value"] for n, site in guide_trace.items() if site["type"] == "mutable"}
    replayed = handlers.replay(handlers.seed(model, model_key), guide_trace)
    substituted = handlers.substitute(replayed, data={**parameters, **mutable})
    values = with_values(model, args, kwargs, inputs or drawn(guide_key))
    model_trace = traced(model_messenger(KeyMarker(substituted)), values)
    observe(model_trace, model, args, kwargs)
    check_model_guide_match(model_trace, guide_trace)
    validate_model(model_trace)
    return _kept(guide_trace), _kept(model_trace)


def observed_plates(model: dict[str, dict]) -> dict[str, tuple[data_plates.Plate, ...]]:
    """Return the plates around each observed site of the model, by name."""
    return {
        name: site["plates"]
        for name, site in model.items()
        if site["type"] == "sample" and site["is_observed"]
    }


def _kept(trace: dict) -> dict:
    kinds = ("sample", "deterministic", "mutable")
    sizes = {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}
    return {
        name: {**site, "plates": plates_of(site, sizes)}
        for name, site in trace.items()
        if site["type"] in kinds
    }


def site_parts(site: dict, scored: bool = False) -> dict:
    """Return the arrays of a site; its log-density if observed and ``scored``."""
    if site["type"] != "sample":
        return {"value": site["value"]}
    if scored and site["is_observed"]:
        parts = {"log_prob": site["fn"].log_prob(site["value"])}
    else:
        parts = {"value": site["value"], "fn": stripped(site["fn"])}
        if (density := drawn_density(site)) is not None:
            parts["log_prob"] = density
    return parts | ({"scale": site["scale"]} if isinstance(site["scale"], jax.Array) else {})


def _names(shapes: Any) -> Sequence[str]:
    """Return the model's site of each output; "" for outputs of the guide."""
    guide, model = shapes
    names = [""] * len(jax.tree.leaves(guide))
    for name in sorted(model):  # the order in which JAX flattens dictionaries
        names += [name] * len(jax.tree.leaves(model[name]))
    return names


def _check_known(sample_sites: Collection[str], guide: dict[str, dict]) -> None:
    sites = {
        name: site
        for name, site in guide.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    known = sites.keys() | {model_site(site) for site in sites.values()}
    if unknown := frozenset(sample_sites) - known:
        names = [name for name, site in sites.items() if not site["infer"].get("is_auxiliary")]
        raise errors.unknown_sample_sites(unknown, names)
    for name in sample_sites:
        if name in sites and is_function_of_sites(sites[name]):
            origins = sorted(sites[name]["value"].sites)
            raise UnsupportedMoments(
                f"site '{name}' of sample_sites is a function of other sites of the guide "
                f"({', '.join(origins)}), which are not drawn",
                sites=[name, *origins],
                remedy="name those sites, or pass NumPyro's guide itself instead of a function "
                "that calls it",
            )


def is_function_of_sites(site: dict) -> bool:
    """Return whether a site of the guide is a function of other sites."""
    return isinstance(without_wrappers(site["fn"]), dist.Delta) and is_random(site["value"])
