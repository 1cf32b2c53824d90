"""Likelihoods of classes: Categorical, Multinomial and OrderedLogistic."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from moment_calculus import likelihoods
from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.classes import (
    check_classes_last,
    class_rule,
    predictive_rule,
)
from moment_calculus.likelihoods.classes.rule import ClassRule
from moment_calculus.numerics.distributions import class_entropy
from moment_calculus.operations.normalised.softmax import LogSoftmax, Softmax
from moment_calculus.predictions.marginals import ClassMarginal
from moment_calculus.values import Gaussian
from numpyro_moments.likelihoods.expected import TEMPERED, expected_log_prob, predictive_moments
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.rules.table import is_random


@expected_log_prob(dist.CategoricalLogits, dist.CategoricalProbs)
def _categorical(fn: Any, value: Any) -> jax.Array:
    logits = random_logits(fn)
    return _rule(logits).log_prob(jnp.asarray(value, jnp.result_type(int)), logits)


@TEMPERED.register(dist.CategoricalLogits, dist.CategoricalProbs)
def _tempered_categorical(fn: Any, value: Any, power: Any) -> jax.Array:
    logits = random_logits(fn)
    return _rule(logits).tempered(power, jnp.asarray(value, jnp.result_type(int)), logits)


@expected_log_prob(dist.MultinomialLogits, dist.MultinomialProbs)
def _multinomial(fn: Any, value: Any) -> jax.Array:
    logits = random_logits(fn)
    return _rule(logits).log_prob_of_counts(value, logits)


@TEMPERED.register(dist.MultinomialLogits, dist.MultinomialProbs)
def _tempered_multinomial(fn: Any, value: Any, power: Any) -> jax.Array:
    logits = random_logits(fn)
    return _rule(logits).tempered_of_counts(power, value, logits)


def _rule(logits: Gaussian) -> ClassRule:
    return class_rule(logits, partial(_noise, logits))


def _noise(logits: Gaussian, shape: tuple[int, ...]) -> jax.Array:
    """Return standard normal draws with a key of the enclosing ``numpyro.handlers.seed``."""
    key = numpyro.prng_key()
    if key is None:
        raise UnsupportedMoments(
            "categorical='sample' draws logits, and there is no random key",
            sites=logits.sites,
            remedy="evaluate inside numpyro.handlers.seed(rng_seed=...), or choose "
            "categorical='points'",
        )
    return jax.random.normal(key, shape, logits.mean.dtype)


def _classes(name: str, fn: Any) -> ClassMarginal:
    if not has_moments(fn):
        return ClassMarginal(
            name,
            "Categorical",
            expected_entropy=lambda: class_entropy(fn.probs),
            mean_quantile=lambda levels: jnp.stack([fn.probs for _ in levels]),
        )
    logits = random_logits(fn)
    rule = predictive_rule(logits)
    return ClassMarginal(
        name,
        "Categorical",
        partial(rule.information, logits),
        mean_quantile=partial(rule.quantiles, logits),
    )


def _ordered_classes(name: str, fn: Any) -> ClassMarginal:
    parameters = fn.predictor, fn.cutpoints
    return ClassMarginal(
        name,
        "OrderedLogistic",
        ordered=True,
        expected_entropy=partial(likelihoods.ordered_entropy, *parameters),
        mean_quantile=partial(likelihoods.quantile_of_ordered, *parameters),
    )


@predictive_moments(dist.CategoricalLogits, dist.CategoricalProbs, marginal=_classes)
def _categorical_predictive(fn: Any) -> tuple:
    if not has_moments(fn):
        return _one_hot(fn.probs, jnp.zeros_like(fn.probs))
    logits = random_logits(fn)
    return _one_hot(*predictive_rule(logits).probabilities(logits))


def _one_hot(mean: jax.Array, epistemic: jax.Array) -> tuple:
    """Return predictive moments of the one-hot outcome, from probabilities and their variances."""
    return *likelihoods.one_hot_moments(mean, epistemic), dist.CategoricalProbs(mean)


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a Categorical or a Multinomial."""
    logits = _logits(vars(fn).get("logits"), vars(fn).get("probs"))
    check_classes_last(logits, _family(fn))
    return logits


def _logits(logits: Any, probs: Any) -> Gaussian:
    if isinstance(logits, LogSoftmax) or isinstance(probs, Softmax):
        return logits.source if logits is not None else probs.source
    if is_random(logits):
        return logits.gaussian()
    raise UnsupportedMoments(
        "a Categorical with random parameters needs logits, or a softmax of them, not other "
        "probabilities",
        sites=getattr(probs, "sites", ()),
        remedy="pass logits=..., without a softmax, or probs=jax.nn.softmax(...)" + OR_DRAW,
    )


def _family(fn: Any) -> str:
    return type(fn).__name__.removesuffix("Logits").removesuffix("Probs")


@expected_log_prob(dist.OrderedLogistic)
def _ordered_logistic(fn: Any, value: Any) -> jax.Array:
    value = jnp.asarray(value, jnp.result_type(int))
    return likelihoods.ordered_logistic(value, fn.predictor, fn.cutpoints)


@TEMPERED.register(dist.OrderedLogistic)
def _tempered_ordered_logistic(fn: Any, value: Any, power: Any) -> jax.Array:
    value = jnp.asarray(value, jnp.result_type(int))
    return likelihoods.tempered_ordered_logistic(power, value, fn.predictor, fn.cutpoints)


@predictive_moments(dist.OrderedLogistic, marginal=_ordered_classes)
def _ordered_logistic_predictive(fn: Any) -> tuple:
    return _one_hot(*likelihoods.ordered_probabilities(fn.predictor, fn.cutpoints))
