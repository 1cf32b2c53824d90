"""Likelihoods of classes: Categorical, Multinomial and OrderedLogistic."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyro.distributions as dist
import torch

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
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.expected import TEMPERED, expected_log_prob, predictive_moments
from pyro_moments.likelihoods.structure import has_moments


@expected_log_prob(torch.distributions.Categorical)
def _categorical(fn: Any, value: Any) -> torch.Tensor:
    logits = random_logits(fn)
    # As in torch, classes may have any dtype.
    return _rule(logits).log_prob(value.long(), logits)


@TEMPERED.register(torch.distributions.Categorical)
def _tempered_categorical(fn: Any, value: Any, power: Any) -> torch.Tensor:
    logits = random_logits(fn)
    return _rule(logits).tempered(power, value.long(), logits)


@expected_log_prob(torch.distributions.OneHotCategorical)
def _one_hot_categorical(fn: Any, value: Any) -> torch.Tensor:
    return _categorical(fn._categorical, value.argmax(-1))


@TEMPERED.register(torch.distributions.OneHotCategorical)
def _tempered_one_hot_categorical(fn: Any, value: Any, power: Any) -> torch.Tensor:
    return _tempered_categorical(fn._categorical, value.argmax(-1), power)


@expected_log_prob(torch.distributions.Multinomial)
def _multinomial(fn: Any, value: Any) -> torch.Tensor:
    logits = random_logits(fn._categorical)
    return _rule(logits).log_prob_of_counts(value, logits)


@TEMPERED.register(torch.distributions.Multinomial)
def _tempered_multinomial(fn: Any, value: Any, power: Any) -> torch.Tensor:
    logits = random_logits(fn._categorical)
    return _rule(logits).tempered_of_counts(power, value, logits)


def _rule(logits: Gaussian) -> ClassRule:
    like = logits.mean
    return class_rule(logits, partial(torch.randn, dtype=like.dtype, device=like.device))


def _classes(name: str, fn: Any) -> ClassMarginal:
    if not has_moments(fn):
        return ClassMarginal(
            name,
            "Categorical",
            expected_entropy=lambda: class_entropy(fn.probs),
            mean_quantile=lambda levels: torch.stack([fn.probs for _ in levels]),
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
    parameters = unwrap(fn.predictor), unwrap(fn.cutpoints)
    return ClassMarginal(
        name,
        "OrderedLogistic",
        ordered=True,
        expected_entropy=partial(likelihoods.ordered_entropy, *parameters),
        mean_quantile=partial(likelihoods.quantile_of_ordered, *parameters),
    )


@predictive_moments(torch.distributions.Categorical, marginal=_classes)
def _categorical_predictive(fn: Any) -> tuple:
    if not has_moments(fn):
        return _one_hot(fn.probs, torch.zeros_like(fn.probs))
    logits = random_logits(fn)
    return _one_hot(*predictive_rule(logits).probabilities(logits))


def _one_hot(mean: torch.Tensor, epistemic: torch.Tensor) -> tuple:
    """Return predictive moments of the one-hot outcome, from probabilities and their variances."""
    return *likelihoods.one_hot_moments(mean, epistemic), dist.Categorical(probs=mean)


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a Categorical with random parameters."""
    parameters = (unwrap(vars(fn).get(name)) for name in ("logits", "probs"))
    of_classes = [one for one in parameters if isinstance(one, LogSoftmax | Softmax)]
    if not of_classes:  # other probabilities than a softmax of logits
        raise UnsupportedMoments(
            "a Categorical with random parameters needs logits, or a softmax of them, not other "
            "probabilities",
            sites=getattr(unwrap(vars(fn).get("probs")), "sites", ()),
            remedy="pass logits=..., without a softmax, or probs=torch.softmax(...)" + OR_DRAW,
        )
    check_classes_last(of_classes[0].source, "Categorical")
    return of_classes[0].source


@expected_log_prob(dist.OrderedLogistic)
def _ordered_logistic(fn: Any, value: Any) -> torch.Tensor:
    parameters = unwrap(fn.predictor), unwrap(fn.cutpoints)
    return likelihoods.ordered_logistic(value.long(), *parameters)


@TEMPERED.register(dist.OrderedLogistic)
def _tempered_ordered_logistic(fn: Any, value: Any, power: Any) -> torch.Tensor:
    parameters = unwrap(fn.predictor), unwrap(fn.cutpoints)
    return likelihoods.tempered_ordered_logistic(power, value.long(), *parameters)


@predictive_moments(dist.OrderedLogistic, marginal=_ordered_classes)
def _ordered_logistic_predictive(fn: Any) -> tuple:
    return _one_hot(*likelihoods.ordered_probabilities(unwrap(fn.predictor), unwrap(fn.cutpoints)))
