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

from moment_calculus.hosts.wording import unknown_sample_sites
from moment_calculus.numerics.rulebook import Propagation
from pyro_moments.diagnosis import diagnosed
from pyro_moments.sites.directly import traced_directly
from pyro_moments.sites.draws import watched
from pyro_moments.sites.messenger import MomentMessenger, model_site
from pyro_moments.sites.observed import refuse_masks_of_other_rows


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

    def watch(program: Callable[[], Any]) -> Any:
        return watched(messenger.draws, program, propagation, model)

    traces = run(messenger, model, guide, args, kwargs, watch)
    if sample_sites:
        _check_known(sample_sites, traces[1])
    refuse_masks_of_other_rows(traces[0].nodes, traces[1].nodes)
    return traces


def run(
    messenger: Messenger,
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    watch: Callable[[Callable[[], Any]], Any],  # runs the model
    around: Messenger | None = None,  # a handler around the model alone
) -> tuple[Trace, Trace]:
    """Return the traces of model and guide under a handler that gives latent sites their value."""
    unwrapped: Any = poutine.unwrap(guide)
    interleaved = isinstance(unwrapped, poutine.messenger.Messenger)
    if interleaved:
        make_parameters(unwrapped, args, kwargs)
    with diagnosed(model, args, kwargs), ExitStack() as stack:
        guide_trace = traced_directly(guide, messenger)
        stack.enter_context(messenger)
        if interleaved:
            program = partial(guide, *args, **kwargs)  # it runs the model itself
            watch(program)
            model_trace, guide_trace = unwrapped.get_traces()
        else:
            if guide_trace is None:
                guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
            replayed = poutine.replay(model, trace=guide_trace)
            program = partial(poutine.trace(replayed).get_trace, *args, **kwargs)
            with around or nullcontext():
                model_trace = watch(program)
    return prune_subsample_sites(model_trace), prune_subsample_sites(guide_trace)


def make_parameters(guide: Any, args: tuple, kwargs: dict) -> None:
    """Run a guide messenger once on samples, which initialises its parameters from the priors."""
    if isinstance(guide, torch.nn.Module) and next(guide.parameters(), None) is None:
        with poutine.block():
            guide(*args, **kwargs)


def _check_known(sample_sites: Collection[str], guide_trace: Trace) -> None:
    sites: dict[str, Any] = {
        name: site
        for name, site in guide_trace.nodes.items()
        if site["type"] == "sample" and not site["is_observed"] and not site_is_subsample(site)
    }
    known = sites.keys() | {model_site(site) for site in sites.values()}
    if unknown := frozenset(sample_sites) - known:
        names = [name for name, site in sites.items() if not site["infer"].get("is_auxiliary")]
        raise unknown_sample_sites(unknown, names)
