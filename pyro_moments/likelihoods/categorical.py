"""Likelihoods of classes: Categorical, Multinomial and OrderedLogistic."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from torch import distributions

from moment_calculus.likelihoods.classes import check_classes_last
from moment_calculus.likelihoods.classes.registration import ClassLikelihoods, missing_logits_error
from moment_calculus.operations.normalised.softmax import LogSoftmax, Softmax
from moment_calculus.values import Gaussian
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.expected import TABLES
from pyro_moments.likelihoods.structure import has_moments


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a distribution with random parameters."""
    fn = getattr(fn, "_categorical", fn)  # of a Multinomial or a OneHotCategorical
    parameters = (unwrap(vars(fn).get(name)) for name in ("logits", "probs"))
    of_classes = [one for one in parameters if isinstance(one, LogSoftmax | Softmax)]
    if not of_classes:  # other probabilities than a softmax of logits
        raise missing_logits_error(unwrap(vars(fn).get("probs")), "torch.softmax")
    check_classes_last(of_classes[0].source, "Categorical")
    return of_classes[0].source


def _noise(logits: Gaussian, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, dtype=logits.mean.dtype, device=logits.mean.device)


_CLASSES = ClassLikelihoods(
    tables=TABLES,
    logits=random_logits,
    has_random_parameters=has_moments,
    class_index=torch.Tensor.long,  # as in torch, classes may have any dtype
    standard_normal=_noise,
    make_categorical=dist.Categorical,
)
_CLASSES.register_categorical(distributions.Categorical)
_CLASSES.register_multinomial(distributions.Multinomial)
_CLASSES.register_ordered(dist.OrderedLogistic)


@TABLES.expected.register(distributions.OneHotCategorical)
def _one_hot(fn: Any, value: Any) -> torch.Tensor:
    return _CLASSES.log_prob(fn, value.argmax(-1))


@TABLES.tempered.register(distributions.OneHotCategorical)
def _tempered_one_hot(fn: Any, value: Any, power: Any) -> torch.Tensor:
    return _CLASSES.tempered_log_prob(fn, value.argmax(-1), power)
