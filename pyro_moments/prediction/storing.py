"""The distribution of a site as bytes."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.predictions import without_gradient
from moment_inference import as_bytes
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import random_parameters


def stored(name: str, fn: Any) -> bytes:
    """Return a site's distribution as bytes; raise UnsupportedMoments if it has no such form."""
    values = [(value, axes > 0) for value, axes in random_parameters(fn)]
    with torch.no_grad(), full_precision():
        return as_bytes(name, fn, values, _reduce)


def _reduce(tensor: Any) -> Any:
    """Return what to pickle of a tensor: a random one by its value, others without gradient."""
    if isinstance(tensor, MomentTensor):
        return MomentTensor, (unwrap(tensor),)
    if isinstance(tensor, torch.Tensor):
        return without_gradient(tensor).__reduce_ex__(5)
    return NotImplemented
