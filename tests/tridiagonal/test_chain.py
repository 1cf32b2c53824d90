"""The mathematics of a chain against dense Normals in torch, and JAX against torch."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch

from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import einsum, matmul
from moment_calculus.operations.linear.reductions import reduce_mean, reduce_sum
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import swap_last
from moment_calculus.operations.shapes.reshaping import reshape
from moment_guides.families import tridiagonal
from tests.checks.jaxprs import by_numpy
from tests.tridiagonal.dense import correlations, covariance, log_density
from tests.tridiagonal.test_maps import LINEAR, MATRIX, RHO, ROWS, TAU, array, in_jax, site

RHOS = [0.0, 1e-9, 0.1, -0.3, 0.45, -0.45, 0.4999, -0.499999]
SIZES = [1, 2, 3, 64, 65, 200]


def chain(size, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in (size, size, (3, size))]


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("size", SIZES)
def test_the_factor_is_that_of_the_correlation_matrix(size, rho):
    diagonal, below = map(np.asarray, tridiagonal.factor(size, array(rho)))
    factor = np.diag(diagonal) + (np.diag(below, -1) if size > 1 else 0)
    np.testing.assert_allclose(factor @ factor.T, correlations(size, rho), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("size", SIZES)
def test_log_density_and_determinant_are_those_of_a_dense_normal(size, rho):
    loc, scale, values = chain(size)
    found = tridiagonal.log_density(*map(array, (values, loc, scale, rho)))
    expected = [log_density(value, loc, covariance(scale, rho)) for value in values]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10)
    determinant = float(tridiagonal.log_determinant(size, array(rho)))
    assert determinant == pytest.approx(
        np.linalg.slogdet(correlations(size, rho))[1], rel=1e-10, abs=1e-12
    )


@pytest.mark.parametrize("rho", RHOS)
def test_the_divergence_from_a_normal_is_that_of_a_dense_one(rho):
    """KL(q ‖ N(μ, s²)) = that of the marginals − ½ log |R|."""
    loc, scale, _ = chain(200)
    own, size = covariance(scale, rho), 200
    exact = 0.5 * (np.trace(own) + loc @ loc - size - np.linalg.slogdet(own)[1])
    marginals = 0.5 * (scale**2 + loc**2 - 1 - np.log(scale**2)).sum()
    found = marginals - 0.5 * float(tridiagonal.log_determinant(size, array(rho)))
    assert found == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("rho", [0.45, -0.45])
def test_draws_have_the_moments(rho):
    """20,000 of them, within 4.5 standard errors of every mean, variance and covariance."""
    size, count = 10, 20_000
    loc, scale, _ = chain(size)
    noise = np.random.default_rng(1).normal(size=(count, size))
    drawn = np.asarray(tridiagonal.sample(*map(array, (loc, scale, rho, noise))))
    deviation, exact = drawn - loc, covariance(scale, rho)
    assert (abs(deviation.mean(0)) < 4.5 * np.sqrt(np.diagonal(exact) / count)).all()
    products = deviation[:, :, None] * deviation[:, None, :]
    errors = products.std(0) / np.sqrt(count)
    assert (abs(products.mean(0) - exact) < 4.5 * errors).all()


@pytest.mark.parametrize("rho", [0.0, 0.3, -0.45])
def test_gradients_of_the_density_are_those_of_differences(rho):
    """By 40 digits; at ρ = 0 too, where a chain begins."""
    loc, scale, values = chain(100)

    def density(rho):
        return tridiagonal.log_density(*map(array, (values[0], loc, scale)), rho)

    def exact(rho):
        """By the recursion of the factor."""
        u, total, before, ratio = (values[0] - loc) / scale, 0, 0, 0
        for place in u:
            own = 1 - ratio * ratio
            z = (place - ratio * before) / mpmath.sqrt(own)
            total -= (z * z + mpmath.log(own)) / 2
            before, ratio = z, rho / mpmath.sqrt(own)
        return total

    at = array(rho).requires_grad_()
    (found,) = torch.autograd.grad(density(at), at)
    with mpmath.workdps(40):
        expected = mpmath.diff(exact, mpmath.mpf(rho))
    assert float(found) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("size", [2, 5, 70, 5000])
@pytest.mark.parametrize("rho", [0.0, 1e-4, 0.2, 0.45])
def test_curvatures_are_those_of_differences(size, rho):
    """Newton's method begins at ρ = 0, where q = s² is at its least."""
    loc, scale, values = map(array, chain(size))
    slope = torch.func.grad(lambda rho: tridiagonal.log_density(values[0], loc, scale, rho))
    step, rho = 1e-4, array(rho)
    expected = (slope(rho + step) - slope(rho - step)) / (2 * step)
    assert float(torch.func.grad(slope)(rho)) == pytest.approx(float(expected), rel=1e-4)


def test_torch_and_jax_agree_with_slopes_and_curvatures():
    parts = chain(200)

    def of(array, grad, rho):
        loc, scale, values = map(array, parts)
        density = lambda rho: tridiagonal.log_density(values[0], loc, scale, rho)  # noqa: E731
        slopes = grad(density)(rho), grad(grad(density))(rho)
        every = tridiagonal.log_density(values, loc, scale, rho)
        drawn = tridiagonal.sample(loc, scale, rho, values)
        return (*tridiagonal.factor(200, rho), every, drawn, *slopes)

    with jax.enable_x64(True):
        program = jax.vmap(lambda rho: of(jnp.asarray, jax.grad, rho))
        theirs = by_numpy(program)(jnp.asarray(RHOS))
    for place, rho in enumerate(RHOS):
        for ours, other in zip(of(torch.tensor, torch.func.grad, array(rho)), theirs, strict=True):
            np.testing.assert_allclose(other[place], ours, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [65, 5000])
def test_gradients_in_single_precision_are_finite(size):
    """Powers of s underflow on the way."""
    loc, scale, values = (jnp.asarray(part, jnp.float32) for part in chain(size))
    slope = jax.grad(lambda rho: tridiagonal.log_density(values[0], loc, scale, rho))
    rhos = jnp.asarray([0.0, 0.1, 0.3, 0.499], jnp.float32)
    assert np.isfinite(by_numpy(jax.vmap(slope))(rhos)).all()


@pytest.mark.parametrize("rho", [0.5, -0.5, 0.4999999])
def test_single_precision_is_finite_at_the_bound(rho):
    rho = torch.tensor(rho, requires_grad=True)
    loc, scale, values = (torch.tensor(part, dtype=torch.float32) for part in chain(500))
    drawn = tridiagonal.sample(loc, scale, rho, values)
    total = tridiagonal.log_density(values, loc, scale, rho).sum() + drawn.sum()
    (gradient,) = torch.autograd.grad(total, rho)
    assert torch.isfinite(total)
    assert torch.isfinite(gradient)


@pytest.mark.parametrize("axis", [-1, -2])
def test_an_order_goes_along_the_inputs_first(axis):
    order = tridiagonal.Order((3, 4), axis)
    event = np.arange(24).reshape(2, 3, 4)
    expected = event.reshape(2, -1) if axis == -1 else event.swapaxes(1, 2).reshape(2, -1)
    np.testing.assert_array_equal(order.chain(event), expected)
    np.testing.assert_array_equal(order.event(order.chain(event)), event)


def test_the_bound_is_where_the_least_eigenvalue_vanishes():
    for size in (2, 3, 10):
        least = np.linalg.eigvalsh(correlations(size, tridiagonal.bound(size)))[0]
        assert least == pytest.approx(0, abs=1e-12)


def _centred(weight):
    return subtract(weight, reduce_mean(weight, [1], keepdims=True))


def _spelled_out(weight):
    """Centred with a mean that loses its axis and gets it back, as jax.numpy does it."""
    return subtract(weight, reshape(reduce_mean(weight, [1]), (5, 1)))


def _in_halves(weight, x):
    """Σ_i x_i W_ji by two products of halves."""
    halves = (slice(2), slice(2, 4))
    return add(*(matmul(x[:, h], swap_last(index(weight, (slice(None), h)))) for h in halves))


OF_WHOLE = {
    "all elements": (lambda w, x: reduce_sum(w), lambda i: i.sum()),
    "rows, then columns": (lambda w, x: reduce_sum(reduce_sum(w, [0]), [0]), lambda i: i.sum()),
    "mean": (lambda w, x: reduce_mean(scale_shift(w, -0.3, 0.1)), lambda i: -0.3 * i.mean()),
    "centred": (lambda w, x: _centred(w), lambda i: i - i.mean(1, keepdims=True)),
    "sum of centred": (
        lambda w, x: matmul(_centred(w), x[0]),
        lambda i: (i - i.mean(1, keepdims=True)) @ ROWS[0],
    ),
    "sum of centred by another mean": (
        lambda w, x: matmul(_spelled_out(w), x[0]),
        lambda i: (i - i.mean(1, keepdims=True)) @ ROWS[0],
    ),
    "halves": (_in_halves, lambda i: ROWS @ i.T),
    "sum of halves": (
        lambda w, x: reduce_sum(_in_halves(w, x), [1]),
        lambda i: (ROWS @ i.T).sum(1),
    ),
    "sum of outputs": (
        lambda w, x: reduce_sum(scale_shift(linear(x, w), -0.3, 0.1), [1]),
        lambda i: -0.3 * (ROWS @ i.T).sum(1),
    ),
    "outputs through another map": (
        lambda w, x: linear(index(linear(x, w), (slice(None), slice(1, 5))), x),
        lambda i: (ROWS @ i.T)[:, 1:] @ ROWS.T,
    ),
    "einsum": (lambda w, x: einsum("ni,oi->n", x, w), lambda i: (ROWS @ i.T).sum(1)),
}


@pytest.mark.parametrize("case", OF_WHOLE)
@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_linear_maps_of_a_whole_matrix_keep_its_chain(case, flow):
    """Sums over both axes, centring, products in parts and their sums are exact in either mode."""
    program, of = OF_WHOLE[case]
    found = program(site("w", MATRIX, flow), array(ROWS)).gaussian()
    jacobian = np.stack([of(unit).reshape(-1) for unit in np.eye(20).reshape(20, 5, 4)], axis=1)
    own = jacobian @ covariance(TAU * MATRIX.reshape(-1), RHO) @ jacobian.T
    np.testing.assert_allclose(np.asarray(found.variance).reshape(-1), np.diagonal(own), rtol=1e-10)


@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_jax_agrees_with_torch(flow):
    """Means and variances of maps of rows and of the whole matrix, in one program."""

    def moments(array):
        values = [
            program(site("w", MATRIX, flow, array=array), array(ROWS)).gaussian()
            for program, _ in (LINEAR | OF_WHOLE).values()
        ]
        return [part for value in values for part in (value.mean, value.variance)]

    with jax.enable_x64(True):
        theirs = by_numpy(lambda: moments(in_jax))()
    for ours, other in zip(moments(array), theirs, strict=True):
        np.testing.assert_allclose(other, ours, rtol=1e-10, atol=1e-14)
