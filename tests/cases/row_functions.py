"""Functions that rows of ``tests/cases/`` name: programs on values, and the same on tensors."""

import numpy as np
import torch
from torch import distributions

from moment_calculus import likelihoods
from moment_calculus.functions.table import Exp, Sigmoid, activation
from moment_calculus.likelihoods.classes import RULES
from moment_calculus.numerics.arrays import constants
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear import maps as layers
from moment_calculus.operations.shapes.indexing import index
from tests.cases.operand_kinds import LikelihoodCase
from tests.oracles import quadrature as oracles

MATRIX = np.array([[0.4, -1.2], [0.9, 0.3]])
ALPHA, BETA, SET = 1.5, 4.0, (1,)  # hyperprior of a set of weights, and the axis of the set

# ---------------------------------------------------------------------------------------------
# Layers


def fixed(value):
    """A certain linear map of a value or tensor."""
    if isinstance(value, torch.Tensor):
        return value @ constants(MATRIX, value).mT
    return layers.linear(value, constants(MATRIX, value.mean))


def chain(x, w, b, v):
    return layers.linear(layers.linear(x, w, b), v)


def halves(value, select=lambda value, key: value[key]):
    """Two slices of the features of a value or tensor."""
    return select(value, (..., slice(0, 1))), select(value, (..., slice(1, 2)))


# ---------------------------------------------------------------------------------------------
# Likelihoods


def log_normal_density(value, loc, scale):
    return torch.distributions.Normal(loc, scale, validate_args=False).log_prob(value)


def heads(scale_of, rule=likelihoods.normal):
    """A Normal whose location and scale are two slices of one output."""
    return lambda y, out: rule(y, index(out, (..., 0)), scale_of(index(out, (..., 1))))


def plain_heads(scale_of):
    return lambda y, out: log_normal_density(y, out[..., 0], scale_of(out[..., 1]))


def apart(scale_of):
    """A Normal whose scale is a function of a Gaussian of its own."""
    return lambda y, loc, h: likelihoods.normal(y, loc, scale_of(h))


def plain_apart(scale_of):
    return lambda y, loc, h: log_normal_density(y, loc, scale_of(h))


def halved_exp(h):
    return scale_shift(apply(Exp(), h), 0.5)


def shifted_exp(h):
    return scale_shift(apply(Exp(), h), 1.0, 0.2)


def bounded(h):
    return scale_shift(apply(Sigmoid(), h), 2.0, 0.1)


def predictive(part):
    return lambda out: likelihoods.normal_predictive(
        index(out, (..., 0)), halved_exp(index(out, (..., 1)))
    )[part]


def categorical(bound):
    """Class indices are those of the largest scores."""
    return lambda scores, f: RULES[bound].log_prob(scores.argmax(-1), f)


def categorical_log_density(scores, logits):
    chosen = scores.argmax(-1)[..., None]
    return torch.log_softmax(logits, -1).gather(-1, chosen)[..., 0]


def likelihood(name, operands, rule, density, **options):
    """A likelihood row: the batch is the leading axis of every operand."""
    return LikelihoodCase(name, operands, rule, density, tuple(range(len(operands))), **options)


# ---------------------------------------------------------------------------------------------
# Divergences


def by_rows(function):
    """An oracle of one set of weights, for the rows of an array of sets."""
    return lambda *arrays: np.array([function(*row) for row in zip(*arrays, strict=True)])


def log_prior_of_set(mean, deviation):
    best = oracles.best_prior_variance(mean, deviation, ALPHA, BETA)
    return oracles.expected_log_prior(mean, deviation, best)


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
