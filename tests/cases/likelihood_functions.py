"""Functions that rows of likelihoods name: rules on values, and torch's own densities."""

from __future__ import annotations

import numpy as np
import torch
from torch import distributions

from moment_calculus import likelihoods
from moment_calculus.functions.table import Exp, activation
from moment_calculus.numerics.special import constants
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.shapes.indexing import index

CUTS = np.array([-0.7, 0.4])
ROOT = np.array([[0.8, 0.0, 0.0], [0.3, 1.1, 0.0], [-0.4, 0.2, 0.6]])


def density(kind, parameters):
    """Log density of a distribution of torch's, of an observation and what its parameters need.

    ``parameters`` maps the plain arrays to the distribution's keyword arguments.
    """

    def log_prob(value, *arrays):
        return kind(**parameters(*arrays), validate_args=False).log_prob(value)

    return log_prob


def exp(value):
    return value.exp() if isinstance(value, torch.Tensor) else apply(Exp(), value)


def softplus(value):
    if isinstance(value, torch.Tensor):
        return torch.nn.functional.softplus(value)
    return apply(activation("softplus"), value)


def sigmoid(value):
    return (
        value.sigmoid() if isinstance(value, torch.Tensor) else apply(activation("sigmoid"), value)
    )


def ndtr(value):
    if isinstance(value, torch.Tensor):
        return torch.special.ndtr(value)
    return apply(activation("ndtr"), value)


def times(value, by, shift=0.0):
    return value * by + shift if isinstance(value, torch.Tensor) else scale_shift(value, by, shift)


def part(value, place):
    return value[..., place] if isinstance(value, torch.Tensor) else index(value, (..., place))


def classes(scores):
    return scores.argmax(-1)


def log_probit(value, f):
    return (0.5 * torch.erfc((1 - 2 * value) * f / 2**0.5)).log()


def log_geometric(value, f):
    """Torch's own branches on its parameters, which cannot be vectorised."""
    return torch.nn.functional.logsigmoid(f) + value * torch.nn.functional.logsigmoid(-f)


def cut_points(like):
    return constants(CUTS, like)


def ordered(scores, f):
    return likelihoods.ordered_logistic(classes(scores), f, cut_points(scores))


def log_ordered(scores, f):
    below = torch.sigmoid(torch.as_tensor(CUTS) - f[..., None])
    ends = torch.zeros_like(f[..., None])
    cumulative = torch.cat([ends, below, ends + 1], -1)
    return cumulative.diff(dim=-1).gather(-1, classes(scores)[..., None])[..., 0].log()


def multivariate(y, f):
    return likelihoods.multivariate_normal(y, f, constants(ROOT, y))


def log_multivariate(y, f):
    root = torch.as_tensor(ROOT, dtype=y.dtype)
    return distributions.MultivariateNormal(f, scale_tril=root, validate_args=False).log_prob(y)
