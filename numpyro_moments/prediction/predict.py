"""Predict what a model observes: moments and log density, in closed form or by draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.classes import PREDICTIVE_RULES
from moment_calculus.numerics.rulebook import Propagation, RuleBook, check_choice
from moment_calculus.objectives.options import check_particles
from moment_calculus.predictions.moments import Moments, moments_of_value
from moment_calculus.predictions.site import nothing_observed
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.prediction.particles import needed, predict_by_particles
from numpyro_moments.prediction.prediction import Prediction
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.posteriors import without_wrappers
from numpyro_moments.sites.traces import UNDRAWN, Traces, bind, moment_traces


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
        num_particles: number of draws of the latent sites with ``propagation="sampled"``.
        categorical: rule for classes, ``"points"`` or ``"pairs"``.
        rng_key: random key, which sampling needs.
        **kwargs: the model's keyword arguments.

    Returns:
        A :class:`Prediction` for every site that is not latent: ``mean``,
        ``epistemic_variance`` (of the location), ``aleatoric_variance`` (of the noise),
        ``variance``, ``log_prob``, ``quantile`` and ``interval``, ``probs`` and
        ``variation_ratio`` of classes, ``entropy`` and ``mutual_information``,
        ``credible_interval`` of the mean, and ``sample``;
        :class:`~moment_calculus.predictions.moments.Moments` for every deterministic site.

    Raises:
        UnsupportedMoments: if the model leaves the supported operations, a site's
            distribution has no predictive moments, or the model draws random numbers that
            belong to no site.

    Source: Wu et al. 2019, eq. 9; classes by points, see ``categorical``.
    """
    check_particles(propagation, num_particles)
    check_choice("categorical", categorical, PREDICTIVE_RULES)
    how = propagation_of(covariance, rules, categorical)
    with Precision.of(params)():
        if propagation != "analytic":
            bind(guide, model, params)
            program, is_mean = (model, guide, args, kwargs, params), propagation == "mean"
            key = needed(rng_key, is_mean)
            return predict_by_particles(program, is_mean, num_particles, key, sites_to_predict)
        sites = _predicted_sites(model, guide, params, args, kwargs, how)
        return {name: prediction_at(name, site) for name, site in sites.items()}


def log_predictive(
    propagation: Propagation | None,  # None: with covariances, by the exact rules
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> jax.Array:
    """Return the log predictive density of all observations, each on its own, as one sum."""
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
    """Return the sites of the model that are neither latent nor factors."""
    bind(guide, model, params)
    traces = moment_traces(
        model, guide, args, kwargs, params, jax.random.key(0), propagation, predicting=True
    )
    return sites_to_predict(traces)


def sites_to_predict(traces: Traces) -> dict[str, dict]:
    """Return the sites of a model's trace that are neither latent nor factors."""
    return {
        name: site
        for name, site in traces.model.items()
        if name not in traces.guide and not is_factor(site)
    }


def _is_observation(site: dict) -> bool:
    return site["type"] == "sample" and not (site["infer"] or {}).get(UNDRAWN)


def is_factor(site: dict) -> bool:
    """Return whether a site is a ``numpyro.factor``, which predicts nothing."""
    return site["type"] == "sample" and isinstance(without_wrappers(site["fn"]), dist.Unit)


def prediction_at(name: str, site: dict) -> Prediction | Moments:
    """Return the prediction of a site, or the moments of a deterministic one."""
    if site["type"] == "sample":
        return _located(name, site)
    return moments_of_value(site["value"])


def _located(name: str, site: Any) -> Prediction:
    try:
        return Prediction(name, site["fn"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
