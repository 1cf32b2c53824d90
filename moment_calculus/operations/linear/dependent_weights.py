"""Maps by a matrix whose elements are all jointly Gaussian, as under a full-rank guide.

With certain inputs the outputs are a linear map of the matrix, taken as a vector. With
random inputs they are sums of products, with the inputs treated as jointly Gaussian with
the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.operations.elementwise.multiplication import multiply_gaussians
from moment_calculus.operations.shapes.features import index_features
from moment_calculus.operations.shapes.flattening import flattened
from moment_calculus.values import Gaussian


def has_dependent_elements(weight: Any) -> bool:
    """Whether an operand is a matrix of dependent elements with a known covariance."""
    matrix = isinstance(weight, Gaussian) and len(weight.shape) == 2
    return matrix and not weight.independent and flattened(weight) is not None


def as_vector_map(inputs: Any, weight: Gaussian) -> tuple[Gaussian, Array]:
    """Return a vector v and a certain matrix M with weight · x = M v, for inputs x [..., in].

    Exact for certain x. For random x, measured on the ELBO of a network 3-4-1 with tanh
    and strongly correlated weights: off by 0.07 % at standard deviations of 0.17, by 3 %
    at 0.7.
    """
    vector = flattened(weight)
    outputs, size = weight.shape
    assert vector is not None
    lines = np.eye(outputs)
    if isinstance(inputs, Gaussian):
        repeated = index_features(inputs, np.tile(np.arange(size), outputs))
        sums = np.kron(lines, np.ones(size))
        return multiply_gaussians(repeated, vector), constants(sums, vector.mean)
    blocks = constants(lines, vector.mean)[:, :, None] * inputs[..., None, None, :]
    shape = (*inputs.shape[:-1], outputs, outputs * size)
    return vector, namespace(blocks).reshape(blocks, shape)
