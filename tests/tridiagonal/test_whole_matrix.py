"""Linear maps of all elements of a matrix that is made of a chain; JAX agrees with torch."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import einsum, matmul
from moment_calculus.operations.linear.reductions import reduce_mean, reduce_sum
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import swap_last
from moment_calculus.operations.shapes.reshaping import reshape
from tests.checks.jaxprs import by_numpy
from tests.tridiagonal.dense import covariance
from tests.tridiagonal.test_maps import LINEAR, MATRIX, RHO, ROWS, TAU, array, in_jax, site


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
