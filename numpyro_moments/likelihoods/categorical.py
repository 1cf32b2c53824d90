"""Likelihoods of classes: Categorical, Multinomial and OrderedLogistic."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.classes import check_classes_last
from moment_calculus.likelihoods.classes.registration import ClassLikelihoods, missing_logits_error
from moment_calculus.operations.normalised.softmax import LogSoftmax, Softmax
from moment_calculus.values import Gaussian
from numpyro_moments.likelihoods.expected import TABLES
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.rules.table import is_random


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a Categorical or a Multinomial."""
    logits, probs = (vars(fn).get(name) for name in ("logits", "probs"))
    if isinstance(logits, LogSoftmax) or (logits is None and isinstance(probs, Softmax)):
        logits = (probs if logits is None else logits).source
    elif is_random(logits):
        logits = logits.gaussian()
    else:
        raise missing_logits_error(probs, "jax.nn.softmax")
    check_classes_last(logits, type(fn).__name__.removesuffix("Logits").removesuffix("Probs"))
    return logits


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


_CLASSES = ClassLikelihoods(
    tables=TABLES,
    logits=random_logits,
    has_random_parameters=has_moments,
    class_index=lambda value: jnp.asarray(value, jnp.result_type(int)),
    standard_normal=_noise,
    make_categorical=dist.CategoricalProbs,
)
_CLASSES.register_categorical(dist.CategoricalLogits, dist.CategoricalProbs)
_CLASSES.register_multinomial(dist.MultinomialLogits, dist.MultinomialProbs)
_CLASSES.register_ordered(dist.OrderedLogistic)
