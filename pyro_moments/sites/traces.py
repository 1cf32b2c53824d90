"""Run a guide and a model as Pyro's ELBOs do, with moments in place of samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.values import PendingWeight, Propagation
from moment_inference import MaskedSite
from moment_inference.objectives import data_plates
from pyro_moments.evaluation.failure_causes import diagnose_errors, observe
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.refused import holding
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.evaluation.uncertain_inputs import at_means, with_values
from pyro_moments.likelihoods.structure import settled_parameters
from pyro_moments.particles.undrawn import Undrawn
from pyro_moments.sites.host_transforms import transforms_with_moments
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.random_watch import run_watched
from pyro_moments.sites.terms import without_wrappers


def bind(guide: Any, model: Any) -> None:
    """Bind a guide that was made without a model to its model."""
    unwrapped = poutine.unwrap(guide)
    if hasattr(unwrapped, "bind"):
        unwrapped.bind(model)


def is_observation(site: Any) -> bool:
    """Return whether a trace's node is an observed site, not a deterministic one."""
    return is_sample(site) and site["is_observed"]


def is_latent(site: Any) -> bool:
    """Return whether a node of a trace is a latent site."""
    return is_sample(site) and not site["is_observed"]


def is_sample(site: Any) -> bool:
    """Return whether a trace's node has a distribution, is not deterministic."""
    return site["type"] == "sample" and not (site["infer"] or {}).get("_deterministic")


def check_masked_rows(sites: Mapping[str, Any], latent: Collection[str]) -> None:
    """Raise UnsupportedMoments for masks of rows that are no data."""
    samples = {name: site for name, site in sites.items() if site["type"] == "sample"}
    values = {name: site["value"] for name, site in samples.items() if name in latent}
    weights = {
        name: weight for name, value in values.items() if (weight := _masked(value)) is not None
    }
    if not weights:
        return
    data = {
        name: data_plates.ObservedPlates(plates_of(site), tuple(site["value"].shape))
        for name, site in samples.items()
        if name not in latent and is_sample(site) and not is_factor(site)
    }
    data_plates.check_rows_are_data(weights, data)


def _masked(value: Any) -> PendingWeight | MaskedSite | None:
    """Return the masked weight of a value, with moments or drawn, or None."""
    if isinstance(value, MomentTensor):
        return value.value if isinstance(value.value, PendingWeight) else None
    masked = isinstance(value, Undrawn) and isinstance(value.site, MaskedSite)
    return value.site if masked else None


def is_factor(site: Any) -> bool:
    """Return whether a site is a ``pyro.factor``, which predicts nothing."""
    return site["type"] == "sample" and isinstance(without_wrappers(site["fn"]), dist.Unit)


def plates_of(site: Any) -> tuple[data_plates.Plate, ...]:
    """Return the vectorised plates around a site."""
    return tuple(
        data_plates.Plate(frame.name, frame.dim, frame.size, frame.full_size or frame.size)
        for frame in site["cond_indep_stack"]
        if frame.vectorized
    )


def moment_traces(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    propagation: Propagation,
    sample_sites: Collection[str] = (),
    *,
    holds: bool = False,  # whether refused operations have a result without moments
) -> tuple[Trace, Trace]:
    """Return the traces of model and guide, in which Gaussian latent sites hold moments."""
    propagation = propagation.of_guide(poutine.unwrap(guide))
    propagation = propagation.beside_draws() if holds else propagation
    messenger = MomentMessenger(propagation, sample_sites, guide)

    def run_model(program: Callable[[], Any]) -> Any:
        return run_watched(messenger.generator_watch, program, propagation, model)

    with holding(holds):
        traces = run_both(messenger, model, guide, args, kwargs, run_model)
    if sample_sites:
        _check_sample_sites(sample_sites, traces[1])
    check_masked_rows(traces[0].nodes, traces[1].nodes)
    if propagation.may_sweep:
        settle(traces[0].nodes, traces[1].nodes, holds)
    return traces


def settle(sites: Mapping[str, Any], latent: Collection[str], holds: bool = False) -> None:
    """Give the parameters of sites that are not latent covariances that are computed backwards."""
    skipped = (UnsupportedMoments, AttributeError) if holds else ()
    with full_precision():
        for name, site in sites.items():
            if name not in latent and is_sample(site):
                with suppress(*skipped):
                    site["fn"] = settled_parameters(site["fn"])


def run_both(
    messenger: Any,  # gives values to sites, and by input_value to uncertain arguments
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    run_model: Callable[[Callable[[], Any]], Any],  # runs the model
    model_handler: Messenger | None = None,  # a handler around the model alone
) -> tuple[Trace, Trace]:
    """Return the traces of model and guide, with values that a handler gives.

    The guide gets the means of uncertain arguments.
    """
    unwrapped: Any = poutine.unwrap(guide)
    interleaved = isinstance(unwrapped, poutine.messenger.Messenger)
    of_guide = at_means(args, kwargs)
    of_model = with_values(model, args, kwargs, messenger.input_value)
    if interleaved:
        initialise_parameters(unwrapped, *of_guide)
    with diagnose_errors(model, args, kwargs, guide), ExitStack() as stack:
        stack.enter_context(messenger)
        if interleaved:
            program = partial(guide, *of_model[0], **of_model[1])  # it runs the model itself
            run_model(program)
            model_trace, guide_trace = unwrapped.get_traces()
        else:
            with transforms_with_moments(guide, *of_guide):
                guide_trace = poutine.trace(guide).get_trace(*of_guide[0], **of_guide[1])
            replayed = poutine.replay(model, trace=guide_trace)
            program = partial(poutine.trace(replayed).get_trace, *of_model[0], **of_model[1])
            with model_handler or nullcontext():
                model_trace = run_model(program)
    model_trace, guide_trace = map(prune_subsample_sites, (model_trace, guide_trace))
    observe(model_trace.nodes, model, args, kwargs)
    return model_trace, guide_trace


def initialise_parameters(guide: Any, args: tuple, kwargs: dict) -> None:
    """Run a guide messenger once on samples, to initialise its parameters."""
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is None:
        with poutine.block():
            guide(*args, **kwargs)


def _check_sample_sites(sample_sites: Collection[str], guide_trace: Trace) -> None:
    sites: dict[str, Any] = {
        name: site
        for name, site in guide_trace.nodes.items()
        if site["type"] == "sample" and not site["is_observed"] and not site_is_subsample(site)
    }
    known_names = sites.keys() | {model_site(site) for site in sites.values()}
    if unknown := frozenset(sample_sites) - known_names:
        names = [name for name, site in sites.items() if not site["infer"].get("is_auxiliary")]
        raise errors.unknown_sample_sites(unknown, names)
