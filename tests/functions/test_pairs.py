import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.families.relu import dvi_rectifier, dvi_step
from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs.mehler import Operand, function_covariance
from moment_calculus.functions.table import activation
from moment_calculus.numerics import normal
from moment_calculus.rulebooks import RULEBOOKS
from tests.checks.jaxprs import by_numpy

rng = np.random.default_rng(11)
NAMES = ["relu", "leaky_relu", "heaviside", "sigmoid", "tanh", "exp"]
BOOKS = ["exact", "dvi"]


def gaussian(size=6, batch=(), spread=1.0, rank=None):
    factor = rng.normal(size=(*batch, size, rank or size)) * spread
    return rng.normal(size=(*batch, size)) * spread, factor @ np.swapaxes(factor, -1, -2)


@pytest.mark.parametrize("book", BOOKS)
@pytest.mark.parametrize("name", NAMES)
def test_symmetric_with_the_exact_variance(name, book):
    function = RULEBOOKS[book].ruled(activation(name))
    mean, covariance = gaussian(batch=(3,), spread=0.7)
    result = pairs.covariance(function, mean, covariance)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    np.testing.assert_allclose(result, np.swapaxes(result, -1, -2), rtol=1e-14)
    np.testing.assert_array_equal(
        np.diagonal(result, axis1=-2, axis2=-1), function.moments(mean, variance)[1]
    )


@pytest.mark.parametrize(("approximate", "exact"), [(dvi_rectifier, "rectifier_covariance")])
def test_dvi_rectifier_is_close(approximate, exact):
    a, b, rho = (rng.uniform(-low, low, 2000) for low in (5, 5, 0.5))
    error = np.abs(approximate(a, b, rho) - getattr(normal, exact)(a, b, rho))
    assert error.max() < 2e-4


def test_dvi_step_is_close_and_knows_the_sign_of_rho():
    a, b, rho = (rng.uniform(-low, low, 2000) for low in (5, 5, 0.5))
    exact = normal.step_covariance(a, b, rho)
    assert np.abs(dvi_step(a, b, rho) - exact).max() < 2e-3
    assert np.all(dvi_step(a, b, rho) * rho >= 0)
    np.testing.assert_allclose(dvi_step(a, b, -rho), -dvi_step(a, -b, rho), rtol=1e-12)


@pytest.mark.parametrize("function", [dvi_rectifier, dvi_step])
def test_dvi_is_smooth_where_its_series_begins(function):
    point = np.array([0.5, 0.5, 0.5, 0.5])
    rho = np.array([0.2 - 1e-9, 0.2 + 1e-9, -1e-12, 1e-12])
    value = function(point, -point, rho)
    np.testing.assert_allclose(value[0], value[1], rtol=1e-7)
    np.testing.assert_allclose(value[2], -value[3], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_dvi(name):
    mean, covariance = gaussian(size=3, spread=0.6)
    factor = torch.as_tensor(np.linalg.cholesky(covariance)).requires_grad_()

    def result(location, root):
        function = RULEBOOKS["dvi"].ruled(activation(name))
        return pairs.covariance(function, location, root @ root.mT)

    location = torch.as_tensor(mean).requires_grad_()
    assert torch.autograd.gradcheck(result, (location, factor), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("host", ["torch", "jax"])
@pytest.mark.parametrize("name", [*NAMES, "hardtanh", "softplus", "gelu"])
def test_gradient_is_finite_beside_nearly_certain_components(name, host):
    """In single precision: the square of such a variance is zero there."""
    mean = np.asarray([-0.05, 0.3, 0.0], np.float32)
    root = np.asarray([[1e-10, 0, 0], [0.02, 0.03, 0], [1e-5, 0, 1e-12]], np.float32)
    if host == "torch":
        root = torch.as_tensor(root).requires_grad_()
        pairs.covariance(activation(name), torch.as_tensor(mean), root @ root.mT).sum().backward()
        gradient = root.grad
    else:

        def total(root):
            covariance = root @ jnp.swapaxes(root, -1, -2)
            return pairs.covariance(activation(name), jnp.asarray(mean), covariance).sum()

        gradient = by_numpy(jax.grad(total))(jnp.asarray(root))
    assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("name", ["relu", "tanh", "sin"])
def test_covariance_of_functions_with_unequal_batches(name):
    """One row beside many is that row repeated."""
    generator = np.random.default_rng(4)
    row, rows = generator.normal(size=3), generator.normal(size=(4, 3))
    sizes = 0.5 + generator.random(3), 0.5 + generator.random((4, 3))
    covariance = 0.2 * generator.random((4, 3, 3))
    function = activation(name)
    one, many = Operand(function, row, sizes[0]), Operand(function, rows, sizes[1])
    wide = Operand(function, *(np.broadcast_to(part, (4, 3)) for part in (row, sizes[0])))
    for first, second, repeated in ((one, many, (wide, many)), (many, one, (many, wide))):
        found = function_covariance(first, second, covariance, 16)
        np.testing.assert_allclose(found, function_covariance(*repeated, covariance, 16))
