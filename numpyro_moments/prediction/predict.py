"""Predict what a model observes: moments and log density, in closed form or by draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, ExpandedDistribution
from numpyro.distributions.batch_util import promote_batch_shape

from moment_calculus.likelihoods.classes import PREDICTIVE_RULES
from moment_calculus.objectives.options import check_particles
from moment_calculus.predictions.moments import Moments, moments_of_draws, moments_of_value
from moment_calculus.predictions.site import at_site, summed_log_density
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.propagation import Propagation, RuleBook, check_choice
from numpyro_moments.evaluation.arguments import Precision, checked_key
from numpyro_moments.likelihoods.structure import distributions_in, restored
from numpyro_moments.prediction.prediction import Prediction, SampledPrediction
from numpyro_moments.sites.drawn_traces import Drawing, drawn_traces
from numpyro_moments.sites.terms import WRAPPERS
from numpyro_moments.sites.traces import UNDRAWN, Traces, bind, is_factor, moment_traces


def predict_by_particles(
    program: tuple[Callable, Callable, tuple, dict, dict],
    is_mean: bool,  # whether the means of the latent sites replace draws
    count: int,
    key: Any,
) -> dict[str, Any]:
    """Return the predictions of a model's sites by draws of its latent sites."""
    kinds: dict[str, str] = {}

    def consume(traces: Traces) -> dict[str, Any]:
        sites = sites_to_predict(traces)
        kinds.update({name: site["type"] for name, site in sites.items()})
        return {
            name: restored(site["fn"]) if site["type"] == "sample" else site["value"]
            for name, site in sites.items()
        }

    def particle(key: Any) -> dict[str, Any]:
        return drawn_traces(*program, key, Drawing(is_mean, predicting=True), consume)

    found = jax.vmap(particle)(jax.random.split(key, 1 if is_mean else count))
    return {
        name: SampledPrediction(name, of_particles(part))
        if kinds[name] == "sample"
        else moments_of_draws(part, full=False)
        for name, part in found.items()
    }


def of_particles(fn: Any) -> Any:
    """Return a distribution of ``jax.vmap`` with particles in its batch shape."""
    # NumPyro enlarges the batch shape of a distribution, but not those of inner ones from
    # which it draws, such as the Chi2 of a StudentT: all particles would have the same
    # noise.
    if isinstance(fn, ExpandedDistribution):
        return of_particles(_aligned(fn.base_dist, fn)).expand(_batch_shape(fn))
    new = promote_batch_shape(fn)
    if isinstance(fn, WRAPPERS):
        new.base_dist = of_particles(fn.base_dist)
        return new
    inside = {name: part for name, part in vars(fn).items() if isinstance(part, Distribution)}
    vars(new).update({name: of_particles(_aligned(part, fn)) for name, part in inside.items()})
    return new


def _batch_shape(fn: Any) -> tuple[int, ...]:
    """Return the batch shape of an expansion, with particles in front."""
    return (len(jax.tree.leaves(fn)[0]), *fn.batch_shape)


def _aligned(part: Any, fn: Any) -> Any:
    """Return an inner distribution with axes of size one that it lacks."""
    missing = len(fn.batch_shape) - len(part.batch_shape)
    if missing <= 0:
        return part
    new = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, range(1, 1 + missing)), part)
    for each in distributions_in(new):
        each._batch_shape = (1,) * missing + each.batch_shape
    return new


def needed(key: Any, is_mean: bool) -> Any:
    """Return the user's random key, or any key if nothing is drawn."""
    if key is None and not is_mean:
        raise ValueError("propagation='sampled' needs rng_key=, e.g. jax.random.key(0)")
    return jax.random.key(0) if key is None else checked_key("rng_key", key)


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
            return predict_by_particles(program, is_mean, num_particles, key)
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
    """Return the summed log predictive densities of all observations."""
    propagation = propagation or propagation_of("full", "exact")
    sites = _predicted_sites(model, guide, params, args, kwargs, propagation)
    observed = {name: site for name, site in sites.items() if _is_observation(site)}
    return summed_log_density(observed, prediction_at)


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


def prediction_at(name: str, site: dict) -> Any:
    """Return the prediction of a site, or the moments of a deterministic one."""
    if site["type"] == "sample":
        return at_site(Prediction, name, site)
    return moments_of_value(site["value"])
