"""Parameters of a likelihood that are asked together: heads of one output, and links of them."""

import math

import pytest
import torch

from moment_calculus.functions.table import activation
from moment_calculus.likelihoods import normal
from moment_calculus.operations.backward.settled import settle_parameters
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.values.covariances import elementwise_covariance
from tests.backward.cases import by_reference
from tests.backward.programs import CASES

NETWORK = next(case for case in CASES if case.name == "perceptron of tanh")
Y = torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)


def blocks():
    """The covariance of both outputs of each row, [4, 2, 2], and the means, [4, 2]."""
    covariance = by_reference(NETWORK, 0.6).detach().reshape(4, 2, 4, 2)
    return torch.stack([covariance[i, :, i, :] for i in range(4)]), NETWORK.result().mean


def heads():
    """A location and the logarithm of a scale."""
    out = NETWORK.result()
    return index(out, (..., 0)), index(out, (..., 1))


def check_joint_moments():
    """Variances of two heads, and their covariance."""
    parts = heads()
    found = settle_parameters(parts, batch_rank=1)
    first, second = (found[id(part)] for part in parts)
    expected, _ = blocks()
    torch.testing.assert_close(first.variance, expected[:, 0, 0], rtol=1e-10, atol=0.0)
    torch.testing.assert_close(second.variance, expected[:, 1, 1], rtol=1e-10, atol=0.0)
    between = elementwise_covariance(first, second)
    torch.testing.assert_close(between, expected[:, 0, 1], rtol=1e-10, atol=1e-13)
    assert between.abs().max() > 0.1


def test_joint_moments_of_two_heads():
    check_joint_moments()


def test_an_expected_density_uses_all_of_them():
    """E[−((y − f)² e^{−g})/2 − g/2] of jointly Gaussian f and g, by its closed form."""
    loc, raw = heads()
    scale = apply(activation("exp"), scale_shift(raw, 0.5))
    found = settle_parameters([loc, scale], batch_rank=1)
    density = normal(Y, found[id(loc)], found[id(scale)])
    covariance, mean = blocks()
    # under the tilt e^{−g} the mean of f is less by Cov(f, g)
    off = Y - (mean[:, 0] - covariance[:, 0, 1])
    tilt = torch.exp(-mean[:, 1] + covariance[:, 1, 1] / 2)
    squares = tilt * (off * off + covariance[:, 0, 0])
    expected = -0.5 * (squares + mean[:, 1]) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(density, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", ["exp", "softplus", "sigmoid"])
def test_links_are_taken_at_the_variance_of_the_sweep(function):
    link = activation(function)
    raw = heads()[0]
    part = apply(link, raw)
    (value,) = settle_parameters([part], batch_rank=1).values()
    covariance, mean = blocks()
    expected = link.moments(mean[:, 0], covariance[:, 0, 0])
    torch.testing.assert_close(value.gaussian().mean, expected[0], rtol=1e-9, atol=0.0)
    torch.testing.assert_close(value.gaussian().variance, expected[1], rtol=1e-9, atol=0.0)


def test_vectors_have_the_covariance_of_their_features():
    out = NETWORK.result()
    (value,) = settle_parameters([out], batch_rank=1).values()
    expected, _ = blocks()
    torch.testing.assert_close(value.joint_covariance(), expected, rtol=1e-10, atol=1e-13)


def test_what_the_sweep_forward_knows_is_left_as_it_is():
    """One random layer."""
    case = next(case for case in CASES if case.name == "one random layer")
    assert settle_parameters([index(case.result(), (..., 0))], batch_rank=1) == {}
