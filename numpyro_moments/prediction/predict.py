"""Closed-form predictions: moments and log density of what the model observes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from moment_calculus.hosts.docstrings import documented
from moment_calculus.hosts.moments import Moments, as_moments
from moment_calculus.hosts.predictions.docstrings import PREDICTED_SITES
from moment_calculus.hosts.wording import nothing_observed
from moment_calculus.likelihoods.classes import LAWS
from moment_calculus.numerics.rulebook import Propagation, RuleBook, check_choice
from moment_calculus.objectives.options import check_particles
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.prediction.particles import needed, predicted_by_particles
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.binding import bind
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.traces import UNDRAWN, Traces, moment_traces


@documented("NumPyro", sites=PREDICTED_SITES)
def predict(
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    *args: Any,
    covariance: str = "full",
    rules: str | RuleBook = "exact",
    propagation: str = "analytic",
    num_particles: int = 100,
    categorical: str = "points",
    rng_key: Any = None,
    **kwargs: Any,
) -> dict[str, Prediction | SampledPrediction | Moments]:
    """Predict what the model observes, in closed form and one pass, or by draws.

    Args:
        model: NumPyro model.
        guide: guide with Gaussian sites.
        params: trained parameters of the guide (and the model), from ``svi.get_params``.
        *args: the model's arguments, with new inputs and, usually, without observations.
        covariance: ``"full"`` or ``"diagonal"``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        num_particles: number of draws of the latent sites where they are sampled.
        categorical: rule for classes, ``"points"`` or ``"pairs"``.
        rng_key: random key, which sampling needs.
        **kwargs: the model's keyword arguments.

    {sites}
    """
    check_particles(propagation, num_particles)
    check_choice("categorical", categorical, LAWS)
    how = propagation_of(covariance, rules, categorical)
    with Precision.of(params)():
        if propagation != "analytic":
            bind(guide, model, params)
            program, is_mean = (model, guide, args, kwargs, params), propagation == "mean"
            key = needed(rng_key, is_mean)
            return predicted_by_particles(program, is_mean, num_particles, key, predicted_in)
        sites = _predicted_sites(model, guide, params, args, kwargs, how)
        return {name: predicted_at(name, site) for name, site in sites.items()}


def log_predictive(
    propagation: Propagation | None,
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> jax.Array:
    """Log predictive density of what is observed, each element on its own, in closed form.

    Args:
        propagation: how randomness flows; by default with covariances, by the exact rules.
        model: NumPyro model.
        guide: guide with Gaussian sites.
        params: trained parameters of the guide (and the model).
        *args: the model's arguments, with observations.
        **kwargs: the model's keyword arguments.

    Returns:
        The sum over all elements of all observed sites.

    Raises:
        ValueError: if nothing is observed.
    """
    propagation = propagation or propagation_of("full", "exact")
    sites = _predicted_sites(model, guide, params, args, kwargs, propagation)
    observed = {name: site for name, site in sites.items() if _is_observation(site)}
    if not observed:
        raise nothing_observed()
    parts = [_located(name, site).log_prob(site["value"]) for name, site in observed.items()]
    return jnp.sum(jnp.stack([jnp.sum(part) for part in parts]))


def _predicted_sites(
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    args: tuple,
    kwargs: dict[str, Any],
    propagation: Propagation,
) -> dict[str, dict]:
    """The sites of the model that are no latent ones, and no factors."""
    bind(guide, model, params)
    traces = moment_traces(
        model, guide, args, kwargs, params, jax.random.key(0), propagation, predicting=True
    )
    return predicted_in(traces)


def predicted_in(traces: Traces) -> dict[str, dict]:
    """The sites of a model that are no latent ones, and no factors.

    Args:
        traces: of model and guide, with moments for the latent sites.
    """
    return {
        name: site
        for name, site in traces.model.items()
        if name not in traces.guide and not is_factor(site)
    }


def _is_observation(site: dict) -> bool:
    return site["type"] == "sample" and not (site["infer"] or {}).get(UNDRAWN)


def is_factor(site: dict) -> bool:
    """Whether a site is a ``numpyro.factor``: there is nothing to predict.

    Args:
        site: of a trace.
    """
    return site["type"] == "sample" and isinstance(without_wrappers(site["fn"]), dist.Unit)


def predicted_at(name: str, site: dict) -> Prediction | Moments:
    """What is known of a site: its predictive distribution, or moments of a deterministic one.

    Args:
        name: of the site.
        site: of the model's trace, with moments.
    """
    if site["type"] == "sample":
        return _located(name, site)
    return as_moments(site["value"])


def _located(name: str, site: Any) -> Prediction:
    try:
        return Prediction(name, site["fn"])
    except UnsupportedMoments as refusal:
        raise refusal.at_site(name, site.get("line", "")) from None
