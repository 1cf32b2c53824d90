"""Bases of effects beside closed forms of their covariances."""

import array_api_compat
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from moment_inference import structures

SQUARE = [[0, 1], [1, 2], [2, 3], [3, 0], [1, 3]]
rng = np.random.default_rng(0)
X = np.sort(rng.uniform(2.0, 5.0, 30))
WIDE = structures.Interval(2.0, 5.0)


def scaled(covariance):
    """With a geometric mean of variances of 1."""
    return covariance / np.exp(np.log(np.diag(covariance)).mean())


@pytest.mark.parametrize(("count", "order"), [(2, 1), (7, 1), (40, 1), (3, 2), (40, 2)])
def test_walks_are_the_scaled_generalised_inverse_of_their_structure(count, order):
    steps = np.diff(np.eye(count), order, axis=0)
    basis = structures.walk(count, order).basis
    assert basis.shape == (count, count - order)
    expected = scaled(np.linalg.pinv(steps.T @ steps, hermitian=True))
    assert np.allclose(basis @ basis.T, expected, atol=1e-8)
    polynomials = np.arange(count)[:, None] ** np.arange(order)
    assert np.allclose(polynomials.T @ basis, 0, atol=1e-8 * count**order)


def test_differences_of_a_walk_are_independent_and_alike():
    """So that the scale of a step follows from that of the effect."""
    for order in (1, 2):
        steps = np.diff(structures.walk(30, order).basis, order, axis=0)
        covariance = steps @ steps.T
        assert np.allclose(covariance, covariance[0, 0] * np.eye(30 - order), atol=1e-9)


def test_a_walk_needs_more_steps_than_its_order():
    with pytest.raises(ValueError, match="count=2: a walk of order 2"):
        structures.walk(2, 2)


def laplacian(edges, places):
    matrix = np.zeros((places, places))
    for one, other in edges:
        matrix[[one, other], [one, other]] += 1
        matrix[[one, other], [other, one]] -= 1
    return matrix


def test_maps_are_the_scaled_generalised_inverse_of_the_laplacian():
    """However edges are written: in both directions, or twice."""
    expected = scaled(np.linalg.pinv(laplacian(SQUARE, 4), hermitian=True))
    for edges in (SQUARE, np.array(SQUARE)[::-1, ::-1], SQUARE + SQUARE):
        basis = structures.map_of(edges, 4).basis
        assert basis.shape == (4, 3)
        assert np.allclose(basis @ basis.T, expected, atol=1e-10)


def test_parts_of_a_map_are_scaled_each_and_lonely_places_have_variance_one():
    """A square, a place alone, and a pair, in mixed order."""
    order = np.array([4, 0, 6, 2, 5, 1, 3])
    edges = order[np.array([*SQUARE, [5, 6]])]
    spectrum = structures.map_of(edges, 7)
    expected = np.zeros((7, 7))
    expected[np.ix_(order[:4], order[:4])] = scaled(np.linalg.pinv(laplacian(SQUARE, 4)))
    expected[order[4], order[4]] = 1
    expected[np.ix_(order[5:], order[5:])] = [[1, -1], [-1, 1]]
    assert spectrum.basis.shape == (7, 5)
    assert np.allclose(spectrum.basis @ spectrum.basis.T, expected, atol=1e-10)
    assert np.allclose(spectrum.vectors @ spectrum.vectors.T, np.eye(7), atol=1e-12)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 0]], "neighbour of itself"),
        ([[0, 4]], "edges name places 0 to 4, of 0 to 3"),
        ([0, 1], r"no pairs \[m, 2\]"),
        ([[0.0, 1.0]], "type float64"),
    ],
)
def test_edges_that_are_none_are_refused(edges, message):
    with pytest.raises(ValueError, match=message):
        structures.map_of(edges, 4)


DISTANCES = np.abs(X[:, None] - X)
COVARIANCES = {
    "squared exponential": lambda r: np.exp(-0.5 * r**2),
    "matern 3/2": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern 5/2": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
}


@pytest.mark.parametrize("kernel", COVARIANCES)
def test_curves_have_the_covariance_of_their_kernel(kernel):
    """Of a Gaussian process with a length of a fifth of the interval."""
    length, size = 0.6, (WIDE, 400, 2.5)
    root = structures.kernel_root(kernel)(structures.hilbert_squares(X, *size), 1.0, length, np.exp)
    basis = structures.hilbert_functions(X, *size) * root
    expected = COVARIANCES[kernel](DISTANCES / length)
    tolerance = 1e-6 if kernel == "squared exponential" else 1e-3
    assert np.abs(basis @ basis.T - expected).max() < tolerance


def test_kernels_are_named():
    with pytest.raises(ValueError, match="kernel='periodic': choose one of 'squared exponential'"):
        structures.kernel_root("periodic")


@pytest.mark.parametrize(("functions", "degree"), [(4, 3), (12, 3), (9, 2), (5, 1), (11, 4)])
def test_splines_are_those_of_scipy(functions, degree):
    step = WIDE.width / (functions - degree)
    knots = WIDE.low + step * np.arange(-degree, functions + 1)
    expected = BSpline.design_matrix(X, knots, degree).toarray()
    found = structures.spline_functions(X, WIDE, functions, degree)
    assert np.allclose(found, expected, atol=1e-12)
    assert np.allclose(found.sum(1), 1)


@pytest.mark.parametrize("array", [torch.as_tensor, jnp.asarray], ids=["pyro", "numpyro"])
def test_curves_are_the_same_on_arrays_of_both_frameworks(array):
    x = array(X.astype(np.float32))
    own = structures.Interval.of(x, None)
    for function, size in ((structures.hilbert_functions, 1.5), (structures.spline_functions, 3)):
        found = function(x, own, 9, size)
        assert array_api_compat.array_namespace(found) is array_api_compat.array_namespace(x)
        expected = function(X, structures.Interval.of(X, None), 9, size)
        assert np.allclose(np.asarray(found), expected, atol=1e-5)
