"""What functions that share a value add together, against quadrature and draws."""

from __future__ import annotations

import pytest
import torch

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.backward import asked
from tests.backward.vocabularies import Library, Plain

MEAN = torch.tensor([0.4, -0.7, 0.1, 1.5], dtype=torch.float64)
VARIANCE = torch.tensor([1.2, 0.6, 0.09, 2.5], dtype=torch.float64)
NODES = torch.linspace(-12.0, 12.0, 48_001, dtype=torch.float64)[:, None]
WEIGHTS = torch.softmax(-0.5 * NODES[:, 0] ** 2, 0)
POINTS = MEAN + VARIANCE.sqrt() * NODES
SERIES = 2e-3  # what 32 terms of a series leave where functions bend


def sides(v, x):
    """relu(x) and relu(−x)."""
    return v.function("relu", x), v.function("relu", v.affine(x, -1.0))


FORKS = {
    "relu of both signs": sides,
    "the value and its relu": lambda v, x: (x, v.function("relu", x)),
    "tanh and exp": lambda v, x: (v.function("tanh", x), v.function("exp", v.affine(x, 0.5))),
    "a gate and the value": lambda v, x: (v.product(x, v.function("sigmoid", x)), x),
    "a shifted function": lambda v, x: (
        v.affine(v.function("tanh", x), 2.0, 1.0),
        v.function("tanh", v.affine(x, 1.0, 0.5)),
    ),
}


def by_quadrature(program):
    """The covariance of two functions of each element, [4, 2, 2]."""
    values = torch.stack(program(Plain(), POINTS), -1)
    centred = values - torch.einsum("n,nik->ik", WEIGHTS, values)
    return torch.einsum("n,nik,nil->ikl", WEIGHTS, centred, centred)


def check_fork(program):
    """Both functions asked together, for every element."""
    x = site_value("x", MEAN, VARIANCE, propagation_of("backward", "exact"))
    values = [value.gaussian() for value in program(Library(), x)]
    torch.testing.assert_close(
        asked.joint(values), by_quadrature(program), rtol=SERIES, atol=SERIES
    )


@pytest.mark.parametrize("name", FORKS)
def test_forks_have_their_joint_covariance(name):
    check_fork(FORKS[name])


def check_a_fork_that_is_joined():
    """relu(x) − relu(−x) is x, whatever follows: the maps mix all elements of both sides."""
    generator = torch.Generator().manual_seed(2)
    left, right = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    x = site_value("x", MEAN[None], VARIANCE[None], propagation_of("backward", "exact"))
    library = Library()
    above, below = sides(library, x)
    mapped = library.minus(library.linear(above, left), library.linear(below, left))
    expected = left @ torch.diag(VARIANCE) @ left.T
    torch.testing.assert_close(asked.covariance(mapped)[0], expected, rtol=SERIES, atol=SERIES)
    other = library.plus(library.linear(above, left), library.linear(below, right))
    joint = by_quadrature(sides)
    maps = torch.stack([left, right], -1)
    expected = torch.einsum("oik,ikl,pil->op", maps, joint, maps)
    torch.testing.assert_close(asked.covariance(other)[0], expected, rtol=SERIES, atol=SERIES)


def test_a_fork_that_is_joined():
    check_a_fork_that_is_joined()
