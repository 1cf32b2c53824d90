"""Build the trace of a guide that only samples its sites, without running Pyro's handlers."""

from __future__ import annotations

from typing import Any

from pyro.poutine import Trace
from pyro.poutine.runtime import _PYRO_STACK, Message, default_process_message
from pyro.poutine.trace_messenger import TraceMessenger

from guides.pyro.mean_field import DVIGuide
from pyro_moments.sites.messenger import MomentMessenger


def direct_guide_trace(guide: Any, messenger: Any) -> Trace | None:
    """Build the guide's trace without running Pyro's handlers; None if the guide has to be run.

    Handling the sites takes a tenth of a step of a small network. Only SVI's tracer of
    parameters may be active, which sees the parameters when the posteriors are made.
    """
    if not isinstance(guide, DVIGuide) or not isinstance(messenger, MomentMessenger):
        return None
    if messenger.sample_sites or not all(map(_traces_parameters, _PYRO_STACK)):
        return None
    posteriors = guide.posteriors_alone()
    if posteriors is None:
        return None
    trace = Trace()
    for name, posterior in posteriors.items():
        trace.add_node(name, **_site(name, posterior, messenger))
    return trace


def validate_posteriors(guide: Any) -> None:
    """Validate the parameters of the posteriors, which ``direct_guide_trace`` does not."""
    if isinstance(guide, DVIGuide):
        guide.get_posterior()


def _traces_parameters(handler: Any) -> bool:
    return type(handler) is TraceMessenger and bool(handler.param_only)


def _site(name: str, posterior: Any, messenger: MomentMessenger) -> Message:
    """Return the message of a sample statement that no handler changes."""
    site = Message(
        type="sample",
        name=name,
        fn=posterior,
        is_observed=False,
        args=(),
        kwargs={},
        value=None,
        infer={},
        scale=1.0,
        mask=None,
        cond_indep_stack=(),
        done=False,
        stop=False,
        continuation=None,
    )
    messenger.give(site)
    default_process_message(site)
    return site
