"""Closed-form predictions: moments and log density of what the model observes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpyro.distributions as dist

from moment_calculus.hosts.docstrings import PREDICTED_SITES, documented
from moment_calculus.hosts.moments import Moments, as_moments
from moment_calculus.numerics.rulebook import RuleBook
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.sites.binding import bind
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.traces import moment_traces


@documented("NumPyro", sites=PREDICTED_SITES)
def predict(
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    *args: Any,
    covariance: str = "full",
    rules: str | RuleBook = "exact",
    **kwargs: Any,
) -> dict[str, Prediction | Moments]:
    """Predict what the model observes, in closed form and one pass.

    Args:
        model: NumPyro model.
        guide: guide with Gaussian sites.
        params: trained parameters of the guide (and the model), from ``svi.get_params``.
        *args: the model's arguments, with new inputs and, usually, without observations.
        covariance: ``"full"`` or ``"diagonal"``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
        **kwargs: the model's keyword arguments.

    {sites}
    """
    bind(guide, model, params)
    propagation = propagation_of(covariance, rules)
    traces = moment_traces(
        model, guide, args, kwargs, params, jax.random.key(0), propagation, predicting=True
    )
    return {
        name: _predicted(name, site)
        for name, site in traces.model.items()
        if name not in traces.guide and not _is_factor(site)
    }


def _is_factor(site: dict) -> bool:
    """Whether a site is a ``numpyro.factor``: there is nothing to predict."""
    return site["type"] == "sample" and isinstance(without_wrappers(site["fn"]), dist.Unit)


def _predicted(name: str, site: dict) -> Prediction | Moments:
    if site["type"] == "sample":
        return _located(name, site)
    return as_moments(site["value"])


def _located(name: str, site: Any) -> Prediction:
    try:
        return Prediction(name, site["fn"])
    except UnsupportedMoments as refusal:
        raise refusal.at_site(name, site.get("line", "")) from None
