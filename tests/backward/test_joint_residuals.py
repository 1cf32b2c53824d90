"""What functions that share a value add together, against quadrature and draws."""

from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.backward import asked, narrow
from numpyro_moments import Moments, propagate
from tests.backward.vocabularies import Library, Plain
from tests.checks.jaxprs import by_numpy

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
    """relu(x) − relu(−x) is x, whatever maps follow."""
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


def units(propagation, inputs, function, number):
    """The outputs of a network with one hidden layer of 30 units, and of sums of its rows."""
    generator = torch.Generator().manual_seed(number)
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    first, shift, last = normal(30, inputs), normal(30), normal(2, 30)
    x = site_value("x", 0.3 * normal(4, inputs), normal(4, inputs) ** 2, propagation)
    library = Library()
    hidden = library.affine(library.linear(x, first), 1.5, shift)
    return library.linear(library.function(function, hidden), last)


FEW_INPUTS = [(1, "relu", 0.01), (1, "tanh", 0.08), (2, "tanh", 0.01), (6, "relu", 0.02)]


def check_few_inputs(inputs, function, tolerance):
    """The standard deviations by full covariance, which is exact here."""
    found, exact = (
        units(propagation_of(name, "exact"), inputs, function, 5) for name in ("backward", "full")
    )
    ratio = torch.sqrt(asked.variance(found) / exact.variance)
    assert float((ratio - 1).abs().max()) < tolerance


@pytest.mark.parametrize(("inputs", "function", "tolerance"), FEW_INPUTS)
def test_units_of_few_inputs(inputs, function, tolerance):
    check_few_inputs(inputs, function, tolerance)


@pytest.mark.parametrize(("inputs", "function", "tolerance"), FEW_INPUTS)
def test_gains_alone_would_not_do(inputs, function, tolerance):
    with patch.object(narrow, "few_inputs", lambda _: None), pytest.raises(AssertionError):
        check_few_inputs(inputs, function, 5 * tolerance)


def test_terms_of_few_inputs_make_no_negative_variance():
    """Whatever the scales of inputs and units; single precision holds the powers of these."""
    generator = torch.Generator().manual_seed(0)
    for power in (-20.0, -6.0, 0.0, 6.0):
        scales = 10 ** (power * torch.rand(8, 3, generator=generator))
        x = site_value("x", torch.zeros(5, 3), scales[:5] ** 2, propagation_of("backward", "exact"))
        hidden = Library().linear(x, scales - scales.mean())
        value = Library().function("relu", hidden).gaussian()
        cotangent = torch.randn(6, 5, 8, generator=generator)
        quadratic = (cotangent * value.step.own(value).times(cotangent)).sum(-1)
        assert torch.isfinite(quadratic).all()
        assert (quadratic >= 0).all()


def test_rows_of_certain_inputs_in_a_compiled_program():
    """XLA divides by a product of small numbers, which underflows in single precision."""
    variance = np.array([[0.0, 0.0], [1.0, 0.0]], np.float32)
    weights = np.array([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0]], np.float32)

    def spread(variance):
        noisy = Moments(jnp.ones((2, 2)), variance=variance)
        program = lambda x: jax.nn.relu(x @ weights).sum(-1)  # noqa: E731
        return propagate(program, noisy, covariance="backward").variance

    def total(variance):
        found = spread(variance)
        return found.sum(), found

    slopes, compiled = jax.jit(jax.grad(total, has_aux=True))(variance)
    np.testing.assert_allclose(compiled, by_numpy(spread)(variance), rtol=1e-4)
    assert compiled[0] == 0
    assert np.isfinite(slopes).all()


def test_a_function_of_dependent_values_side_by_side():
    """relu([x, −x]) is [relu(x), relu(−x)], whose sum is |x|."""
    x = site_value("x", MEAN[None], VARIANCE[None], propagation_of("backward", "exact"))
    library = Library()
    beside = library.joined([x, library.affine(x, -1.0)], -1)
    sums = torch.cat([torch.eye(4), torch.eye(4)], 1).double()
    found = asked.variance(library.linear(library.function("relu", beside), sums))[0]
    joint = by_quadrature(sides)
    torch.testing.assert_close(found, joint.sum((-2, -1)), rtol=SERIES, atol=SERIES)
