"""Logarithms of vectors that are no Gaussians: of softmaxes, simplexes, and what was stacked."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import constants
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.sums import subtract
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.normalised.softmax import LogSoftmax, Softmax
from moment_calculus.operations.shapes.concatenation import stack
from moment_calculus.operations.shapes.indexing import unstacked
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.operations.shapes.sticks import logits_of_sticks
from moment_calculus.values import Deferred, Gaussian, Value


def log(value: Any) -> Any:
    """Return the logarithm of a positive function, a softmax, a simplex, or a stack of these."""
    if isinstance(value, Softmax):
        return LogSoftmax(value.source)
    known = _log_of_vector(value)
    return elementary.log(value) if known is None else known


def _log_of_vector(value: Any) -> Value | None:
    if not isinstance(value, Gaussian):
        return None
    parts = unstacked(value)
    if parts and any(isinstance(part, Deferred) for part in parts):
        return stack([log(part) for part in parts], -1)
    step = value.step
    if not isinstance(step, Moved):
        logits = logits_of_sticks(value)
        return None if logits is None else _log_of_simplex(logits)
    if step.combines_elements or step.adds_elements:
        return None
    source = _log_of_vector(step.source)
    return None if source is None else step.apply_to(source, value)


def _log_of_simplex(logits: Gaussian) -> Value:
    """Return log S(x_l) + Σ_{i<l} log S(−x_i) for logits x of the sticks, S logistic."""
    # log S(−x) = log S(x) − x, so that two linear maps [components, sticks] do.
    size = logits.shape[-1]
    rest = np.tril(np.ones((size + 1, size)), -1)
    own = constants(rest + np.eye(size + 1, size), logits.mean)
    logs = linear(apply(activation("logsigmoid"), logits), own)
    return subtract(logs, linear(logits, constants(rest, logits.mean)))
