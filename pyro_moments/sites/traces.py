"""Run a guide and a model as Pyro's ELBOs do, with moments in place of samples."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from pyro import poutine
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from moment_calculus.errors import unknown_sample_sites
from moment_calculus.numerics.rulebook import Propagation
from pyro_moments.failure_causes import diagnose_errors
from pyro_moments.sites.direct_trace import direct_guide_trace
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.observed import check_masked_rows
from pyro_moments.sites.random_watch import run_watched


def moment_traces(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    propagation: Propagation,
    sample_sites: Collection[str] = (),
) -> tuple[Trace, Trace]:
    """Return the traces of model and guide, in which Gaussian latent sites hold moments."""
    messenger = MomentMessenger(propagation, sample_sites, guide)

    def run_model(program: Callable[[], Any]) -> Any:
        return run_watched(messenger.draws, program, propagation, model)

    traces = run_both(messenger, model, guide, args, kwargs, run_model)
    if sample_sites:
        _check_sample_sites(sample_sites, traces[1])
    check_masked_rows(traces[0].nodes, traces[1].nodes)
    return traces


def run_both(
    messenger: Messenger,
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    run_model: Callable[[Callable[[], Any]], Any],  # runs the model
    model_handler: Messenger | None = None,  # a handler around the model alone
) -> tuple[Trace, Trace]:
    """Return the traces of model and guide under a handler that gives latent sites their value."""
    unwrapped: Any = poutine.unwrap(guide)
    interleaved = isinstance(unwrapped, poutine.messenger.Messenger)
    if interleaved:
        initialise_parameters(unwrapped, args, kwargs)
    with diagnose_errors(model, args, kwargs), ExitStack() as stack:
        guide_trace = direct_guide_trace(guide, messenger)
        stack.enter_context(messenger)
        if interleaved:
            program = partial(guide, *args, **kwargs)  # it runs the model itself
            run_model(program)
            model_trace, guide_trace = unwrapped.get_traces()
        else:
            if guide_trace is None:
                guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
            replayed = poutine.replay(model, trace=guide_trace)
            program = partial(poutine.trace(replayed).get_trace, *args, **kwargs)
            with model_handler or nullcontext():
                model_trace = run_model(program)
    return prune_subsample_sites(model_trace), prune_subsample_sites(guide_trace)


def initialise_parameters(guide: Any, args: tuple, kwargs: dict) -> None:
    """Run a guide messenger once on samples, which initialises its parameters from the priors."""
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
        raise unknown_sample_sites(unknown, names)
