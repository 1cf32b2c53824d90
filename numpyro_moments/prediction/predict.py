"""Predict what a model observes: moments and log density, in closed form or by draws."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions import Distribution, ExpandedDistribution
from numpyro.distributions.batch_util import promote_batch_shape

from moment_calculus import errors
from moment_calculus.likelihoods import PREDICTIVE_RULES, families
from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions import (
    ClosedFormSite,
    Moments,
    SampledSite,
    at_site,
    blocks,
    checked_count,
    moments_of_draws,
    not_of_particles,
    summed_log_density,
)
from moment_calculus.rulebooks import propagation_by
from moment_calculus.values import Propagation, RuleBook, check_choice
from moment_inference import Attribution, attribution_of, moments_with_attribution
from moment_inference.objectives import choices, remembered
from moment_inference.optimisation import check_dictionary, of_fit
from numpyro_moments.evaluation.arguments import Precision, checked, checked_key, in_jax
from numpyro_moments.evaluation.failure_causes import (
    UNDRAWN,
    diagnose_errors,
    explain_predictions,
)
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.likelihoods.expected import draw_observations, marginal, moments_and_law
from numpyro_moments.likelihoods.structure import distributions_in, has_moments, restored
from numpyro_moments.prediction.means import mean_value
from numpyro_moments.prediction.storing import stored
from numpyro_moments.sites.drawn_traces import Drawing, drawn_traces
from numpyro_moments.sites.subsamples import Whole
from numpyro_moments.sites.traces import Traces, bind, is_factor, moment_traces

CLASSES = (dist.CategoricalLogits, dist.CategoricalProbs)
PARTICLES = 100  # draws of the latent sites


@one_thread_at_a_time
class Prediction(ClosedFormSite):
    """Predictive distribution of one site, as moments, a log density, quantiles and draws.

    For classes the moments are those of the one-hot outcome: ``mean`` holds the
    probabilities, ``epistemic_variance`` what of p(1 − p) comes from not knowing the
    weights. Moments that do not exist are NaN or infinite: a Cauchy or a Student with one
    degree of freedom or less has no mean, and with two or less infinite
    ``aleatoric_variance``; it has quantiles.

    Args:
        name: the site.
        fn: its distribution, with random parameters.

    Raises:
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    framework = "NumPyro"

    def __init__(self, name: str, fn: Any) -> None:
        inner = families.unwrapped(fn, WRAPPERS)
        base, has_classes = inner[0], isinstance(inner[0], CLASSES)
        *parts, law = moments_and_law(name, base)
        # A mean may be a number, as that of Normal(0.0, scale).
        parts = [part if hasattr(part, "shape") else jnp.asarray(part) for part in parts]
        rules = (*parts, law), marginal(name, base)
        super().__init__(name, fn, inner, *rules, has_classes, Precision.of(parts[0]))

    def __reduce__(self) -> tuple:
        """Return what to pickle: the distribution of the site, without the steps of the model."""
        with self._context():
            content = stored(self.name, self.distribution)
        return restored_prediction, (type(self), self.name, content, self._context)

    def attribution(self) -> Attribution:
        """Attribute the predictive variance to its sources.

        These are the latent sites, the Gaussian match of every activation, products of the
        noise of weights and of what they multiply, and the noise of the observation; their
        variances sum to the predictive variance. The mean of an observation is taken as
        linear in all of them with expected derivatives, as by ``covariance="backward"``.
        Under another rule for the variance (classes, or a prediction by ``"full"`` or
        ``"diagonal"``), the difference has a row of its own.

        Returns:
            :class:`numpyro_moments.Attribution`, with a table and a plot.

        Raises:
            UnsupportedMoments: if the mean of the distribution has no moments, or the sweep
                backwards cannot go through a step of the model.
        """
        with self._context():
            attribute = "probs" if isinstance(self._base, CLASSES) else "mean"
            return attribution_of(self, mean_value(self.distribution, attribute))

    def sample(self, n: int, key: jax.Array) -> jax.Array:
        """Draw from the predictive distribution of every element.

        What an element depends on is drawn from the posterior, then the element from the
        likelihood: exact draws of its own predictive distribution, epistemic and aleatoric
        together. They are not joint draws of several elements: what two rows share,
        because one set of weights predicts both, is not in them. For functions of several
        rows (sums, maxima, paths) draw the weights with NumPyro's ``Predictive``.

        Args:
            n: how many draws.
            key: random key.

        Returns:
            Array [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            TypeError: if ``key`` is no key.
            UnsupportedMoments: if the predictive moments are of a rule of your own that
                returns a log density, not a distribution.
        """
        count, key = checked_count(n), checked_key("key", key)
        with self._context():
            return self._draws(
                has_moments(self._base),
                lambda distribution: restored(distribution).sample(key, (count,)),
                lambda base, shape: draw_observations(base, key, count, shape),
            )


@one_thread_at_a_time
class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with the interface of ``Prediction``.

    A mixture with equal weights: ``mean`` is the mean of the particles' means and
    ``epistemic_variance`` their variance, ``aleatoric_variance`` the mean of the
    particles' variances. ``log_prob`` is the logarithm of the mean density, of all
    elements of an event together. Quantiles invert the mixture's own distribution
    function; ``credible_interval`` is between quantiles of the particles' means, by
    Hazen's rule, and no wider than these.

    Args:
        name: the site.
        fn: its distribution, whose batch shape begins with the particles.

    Raises:
        ValueError: if the batch shape is empty, or a parameter is random: then there are
            no particles.
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        super().__init__(Prediction(name, fn))

    def __reduce__(self) -> tuple:
        """Return what to pickle: the distribution of the site, without the steps of the model."""
        with self._context():
            content = stored(self.name, self.distribution)
        return restored_prediction, (type(self), self.name, content, self._context)

    def sample(self, n: int, key: jax.Array) -> jax.Array:
        """Draw from the predictive distribution.

        A draw is of one particle in all its elements, and so a joint draw of several
        rows. Every particle has equally many draws, or one more than others, in random
        order.

        Args:
            n: how many draws.
            key: random key.

        Returns:
            Array [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            TypeError: if ``key`` is no key.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        rounds = -(-count // particles)
        of_drawing, of_order = jax.random.split(checked_key("key", key))
        with self._context():
            drawn = restored(self.distribution).sample(of_drawing, (rounds,))
            drawn = drawn.reshape(rounds * particles, *drawn.shape[2:])
            return drawn[jax.random.permutation(of_order, len(drawn))[:count]]


def restored_prediction(kind: type, name: str, content: bytes, precision: Precision) -> Any:
    """Return a prediction that was pickled."""
    with precision():
        prediction = kind(name, pickle.loads(content))
    prediction.is_restored = True
    return prediction


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


def _aligned(distribution: Any, fn: Any) -> Any:
    """Return an inner distribution with axes of size one that it lacks."""
    missing = len(fn.batch_shape) - len(distribution.batch_shape)
    if missing <= 0:
        return distribution
    new = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, range(1, 1 + missing)), distribution)
    for each in distributions_in(new):
        each._batch_shape = (1,) * missing + each.batch_shape
    return new


def needed(key: Any, is_mean: bool) -> Any:
    """Return the user's random key, or any key if nothing is drawn."""
    if key is None and not is_mean:
        raise ValueError("propagation='sampled' needs rng_key=, e.g. jax.random.key(0)")
    return jax.random.key(0) if key is None else checked_key("rng_key", key)


@checked
def predict(
    model: Callable,
    guide: Any,
    params: Any = None,
    *args: Any,
    covariance: str | None = None,
    rules: str | RuleBook | None = None,
    propagation: str | None = None,
    num_particles: int | None = None,
    categorical: str | None = None,
    batch_size: int | None = None,
    rng_key: Any = None,
    **kwargs: Any,
) -> dict[str, Prediction | SampledPrediction | Moments]:
    """Predict what the model observes, in closed form and one pass, or by draws.

    Args:
        model: NumPyro model.
        guide: guide with Gaussian sites; or what ``fit`` returned, which has ``params``; or
            what ``nested`` returned: predictions are mixtures over its draws then.
        params: trained parameters of the guide (and the model), from ``svi.get_params``;
            ``predict(model, result, x)`` takes those of the fit ``result``.
        *args: the model's arguments, with new inputs and, usually, without observations;
            ``Moments`` for inputs that are uncertain or missing. A plate that draws a
            subsample of their rows takes all of them.
        covariance: ``"full"``, ``"backward"`` or ``"diagonal"``; by default that of the
            objective of the fit, else what the guide names, such as ``"full"`` of a
            ``DVIGuide``, else ``"full"``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own; by default that of the objective of the fit, else ``"exact"``.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``; by default that of a fit by
            ``DeterministicELBO`` or ``BBAlphaELBO``, else ``"analytic"``.
        num_particles: number of draws of the latent sites: 100 by default with
            ``propagation="sampled"``, 1000 of what ``nested`` returned, which has no
            propagation.
        categorical: rule for classes, by default that of the objective of the fit if it has
            probabilities, else that of the rule book, or points:
            ``"points"`` (fixed points), ``"pairs"`` (pairwise logsumexp); or a closed form of the
            papers for the mean probability: ``"logistic"``, ``"normal"``, ``"simplified"`` or
            ``"taylor"``, with errors of 0.019, 0.081, 0.029 and 0.021 in a probability at a logit
            variance of one (points: 0.0005, pairs: 0.002), beside the variance by pairs.
        batch_size: rows that are predicted at once by moments; by default all, or blocks of
            them if the values would take more than 1 GiB, where rows do not depend on each
            other: a few are also predicted alone, and have to come out the same. Blocks keep
            moments, and predict the rows again for densities, quantiles and draws; they
            know no attribution, nor covariances between rows of a deterministic site.
        rng_key: random key, which ``propagation="sampled"`` needs; by default always the same
            where a fit was trained by draws, and of what ``nested`` returned.
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
    if hasattr(guide, "predict_by_draws"):
        options: dict[str, Any] = {"covariance": covariance, "rules": rules}
        options |= {"propagation": propagation, "categorical": categorical}
        options |= {"batch_size": batch_size}
        count = choices.draws_of_nested(num_particles, options)
        args = args if params is None else (params, *args)
        return guide.predict_by_draws(model, args, kwargs, count, needed(rng_key, True))
    objective = remembered.remembered_objective(guide)
    guide, params, args = of_fit(guide, params, args)
    check_dictionary(params)
    num_particles = PARTICLES if num_particles is None else num_particles
    if propagation is None:
        propagation, needs_key = remembered.kind_of(objective), False
    else:
        needs_key = propagation == "sampled"
    choices.check_particles(propagation, num_particles)
    if categorical is not None:
        check_choice("categorical", categorical, PREDICTIVE_RULES)
    settings = propagation_by(objective, covariance, rules, categorical)
    key = needed(rng_key, not needs_key)
    program = model, guide, args, kwargs, params
    if propagation != "analytic":
        blocks.check_at_once(batch_size, propagation)
    return _predicted(program, settings, propagation, key, num_particles, batch_size)


def predict_by(
    objective: Any,
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    args: tuple,
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """Return predictions as of an objective."""
    settings = propagation_by(objective, None, None)
    program = model, guide, args, kwargs, params
    return _predicted(program, settings, remembered.kind_of(objective), jax.random.key(0))


def _predicted(
    program: tuple[Callable, Any, tuple, dict[str, Any], dict[str, Any]],
    settings: Propagation,
    kind: str,  # of the propagation
    key: Any,
    num_particles: int = PARTICLES,
    batch_size: int | None = None,
) -> dict[str, Any]:
    model, guide, args, kwargs, params = program
    precision = Precision.of(params)
    with precision(), diagnose_errors(model, args, kwargs, handlers.substitute(guide, data=params)):
        args, kwargs = in_jax((args, kwargs), precision.double)
        if kind != "analytic":
            bind(guide, model, params)
            program = model, guide, args, kwargs, params
            with Whole(sizes=blocks.leading_lengths(jax.tree.leaves((args, kwargs)))):
                return predict_by_particles(program, kind == "mean", num_particles, key)
        leaves, structure = jax.tree.flatten((args, kwargs))

        def predict_rows(leaves: list[Any]) -> dict[str, Any]:
            args, kwargs = jax.tree.unflatten(structure, leaves)
            with Whole(sizes=blocks.leading_lengths(leaves)):
                sites = _predicted_sites(model, guide, params, args, kwargs, settings)
            predictions = {name: prediction_at(name, site) for name, site in sites.items()}
            explain_predictions(predictions, model, args, kwargs)
            return predictions

        rows = blocks.Rows.of(leaves, predict_rows, context=precision, split=jax.random.split)
        return dict(blocks.in_blocks(rows, batch_size, settings.memory_limit))


def log_predictive(
    propagation: Propagation,
    model: Callable,
    guide: Callable,
    params: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> jax.Array:
    """Return the summed log predictive densities of all observations."""
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
    latent = [name for name, site in traces.guide.items() if site["type"] == "sample"]
    errors.check_same_model(latent, traces.model)
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
    return moments_with_attribution(site["value"])
