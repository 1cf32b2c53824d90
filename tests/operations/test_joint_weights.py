"""Maps by matrices of jointly Gaussian elements, against quadrature."""

import itertools

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.shapes import permute, reshape
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import cross_covariance

FLOW = propagation_of("full", "exact")
RANDOM = np.random.default_rng(0)
CERTAIN = RANDOM.normal(size=(5, 3))


def vector(size, spread=0.7):
    """A vector of dependent components."""
    root = RANDOM.normal(size=(size, size)) * spread
    moments = Moments(RANDOM.normal(size=size), covariance=root @ root.T / size)
    return as_value(moments, "z", FLOW)


def quadrature(function, z):
    """Mean and covariance of a polynomial of degree two: three nodes are exact for degree five."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    root = np.linalg.cholesky(z.joint_covariance())
    size = len(z.mean)
    steps = np.array(list(itertools.product(nodes, repeat=size)))
    chance = np.array(list(itertools.product(weights / weights.sum(), repeat=size))).prod(-1)
    values = np.array([function(z.mean + root @ step).ravel() for step in steps])
    mean = chance @ values
    return mean, (values - mean).T * chance @ (values - mean)


def check(result, function, z):
    """Means, variances and the covariance of the features of each row, where there are rows."""
    mean, covariance = quadrature(function, z)
    np.testing.assert_allclose(result.mean.ravel(), mean, atol=1e-12)
    np.testing.assert_allclose(result.variance.ravel(), np.diag(covariance), atol=1e-12)
    if result.axis == -1 and len(result.shape) == 2:
        rows, features = result.shape
        blocks = covariance.reshape(rows, features, rows, features)
        own = np.array([blocks[i, :, i, :] for i in range(rows)])
        np.testing.assert_allclose(result.joint_covariance(), own, atol=1e-12)


LAYERS = {
    "rows": (lambda z: matmul(CERTAIN, reshape(z, (3, 2))), lambda z: CERTAIN @ z.reshape(3, 2)),
    "transposed": (
        lambda z: linear(CERTAIN, reshape(z, (2, 3))),
        lambda z: CERTAIN @ z.reshape(2, 3).T,
    ),
    "one input": (
        lambda z: matmul(reshape(z, (2, 3)), CERTAIN[0]),
        lambda z: z.reshape(2, 3) @ CERTAIN[0],
    ),
    "random inputs": (
        lambda z: linear(index(z, slice(0, 2)), reshape(index(z, slice(2, 6)), (2, 2))),
        lambda z: z[2:].reshape(2, 2) @ z[:2],
    ),
    "random columns": (
        lambda z: matmul(reshape(index(z, slice(0, 2)), (1, 2)), permuted(index(z, slice(2, 6)))),
        lambda z: z[:2].reshape(1, 2) @ z[2:].reshape(2, 2).T,
    ),
    "scaled weights": (
        lambda z: linear(CERTAIN, add(scaled(reshape(z, (2, 3))), 0.5)),
        lambda z: CERTAIN @ (np.array([[1.0], [2.0]]) * z.reshape(2, 3) + 0.5).T,
    ),
    "rows of a matrix": (
        lambda z: subtract(index(reshape(z, (2, 3)), 0), index(reshape(z, (2, 3)), 1)),
        lambda z: z[:3] - z[3:],
    ),
    "bias": (
        lambda z: linear(CERTAIN[:, :2], reshape(index(z, slice(0, 4)), (2, 2)), index(z, [4, 5])),
        lambda z: CERTAIN[:, :2] @ z[:4].reshape(2, 2).T + z[4:],
    ),
}


def permuted(z):
    return permute(reshape(z, (2, 2)), (1, 0))


def scaled(value):
    return scale_shift(value, np.array([[1.0], [2.0]]))


@pytest.mark.parametrize("name", LAYERS)
def test_linear_and_bilinear_maps_are_exact(name):
    z = vector(6)
    layer, function = LAYERS[name]
    check(layer(z).gaussian(), function, z)


def network(z, module):
    """Two layers and a shortcut; every weight and bias is part of one vector."""
    first, bias, second = (index(z, slice(*ends)) for ends in ((0, 6), (6, 8), (8, 12)))
    hidden = module.tanh(module.linear(CERTAIN, module.reshape(first, (2, 3)), bias))
    return module.add(module.linear(hidden, module.reshape(second, (2, 2)), bias), hidden)


class OfValues:
    linear, reshape, add = staticmethod(linear), staticmethod(reshape), staticmethod(add)

    @staticmethod
    def tanh(value):
        return apply(activation("tanh"), value)


class OfArrays:
    reshape, add, tanh = np.reshape, np.add, np.tanh

    @staticmethod
    def linear(x, weight, bias):
        return x @ weight.T + bias


def test_a_network_of_narrow_weights_is_its_jacobian():
    """At standard deviations of 1e-3 the covariance is J Σ Jᵀ, with the outputs and the weights."""
    z = vector(12, spread=1e-3)
    step = 1e-5 * np.eye(12)
    run = lambda at: network(at, OfArrays)  # noqa: E731
    slopes = [(run(z.mean + e) - run(z.mean - e)) / 2e-5 for e in step]
    jacobian = np.stack(slopes, axis=-1)
    result = network(z, OfValues).gaussian()
    covariance = z.joint_covariance()
    expected = jacobian @ covariance @ jacobian.mT
    np.testing.assert_allclose(result.joint_covariance(), expected, rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(
        cross_covariance(result, z), jacobian @ covariance, rtol=1e-4, atol=1e-10
    )


def test_one_input_through_several_certain_maps_ties_the_results():
    """They are no independent elements of a batch: a sum over them is not one of variances."""
    z = vector(3)
    maps = RANDOM.normal(size=(4, 2, 3))
    result = linear(z, maps)
    np.testing.assert_allclose(result.joint_covariance(), maps @ z.covariance @ maps.mT)
    assert not result.batch_independent


def test_weights_tied_in_an_unknown_way_are_refused():
    rows = as_value(
        Moments(np.zeros((2, 3)), covariance=np.broadcast_to(np.eye(3) + 0.5, (2, 3, 3))), "z", FLOW
    )
    with pytest.raises(UnsupportedMoments, match=r"dependent components(?s:.)*sample_sites"):
        linear(CERTAIN, rows)


def test_two_matrices_of_one_vector():
    """What is a batch in one meets all of the other."""
    z = vector(8)
    left, right = (reshape(index(z, slice(*ends)), (2, 2)) for ends in ((0, 4), (4, 8)))
    check(matmul(left, right), lambda z: z[:4].reshape(2, 2) @ z[4:].reshape(2, 2), z)
