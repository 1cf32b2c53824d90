"""Moments of what is made with chains, against dense Normals and draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.links import links_of
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.moves import swap_last
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.operations.shapes.selection import index_features
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.lags import lag_covariance
from moment_guides.families import tridiagonal
from moment_guides.families.tridiagonal import Order
from tests.checks.jaxprs import by_numpy
from tests.tridiagonal.dense import covariance, draws

TAU, RHO, COUNT = 0.5, 0.45, 100_000
SIZES = [10, 50, 50, 2]


def array(value):
    return torch.tensor(np.asarray(value, float))


def in_jax(value):
    return jnp.asarray(np.asarray(value, float))


def site(name, mean, flow="full", rho=RHO, axis=-1, array=array):
    flow = propagation_of(flow, "exact")
    parts = (array(part) for part in (mean, TAU * mean, rho))
    return tridiagonal.site(name, *parts, flow, Order(mean.shape, axis))


def sampled(mean, random, count=COUNT, axis=-1):
    """Draws of such a site, [count, *shape]."""
    order = Order(mean.shape, axis)
    flat = order.chain(mean)
    return order.event(draws(flat, TAU * flat, RHO, count, random))


def network(seed, sizes=SIZES):
    """Means of the weights and biases of each layer, and one input."""
    random = np.random.default_rng(seed)
    layers = [
        (random.normal(size=(m, n)) * np.sqrt(2 / n), 0.3 * random.normal(size=m))
        for n, m in itertools.pairwise(sizes)
    ]
    return layers, random.normal(size=(1, sizes[0])), random


def propagated(layers, x, function, layout="torch", rho=RHO, array=array):
    """Moments of the outputs; weights are [out, in] as torch's, or [in, out] as flax's."""
    value = array(x)
    for place, (weight, bias) in enumerate(layers):
        if place:
            value = apply(activation(function), value).gaussian()
        if layout == "torch":
            value = linear(value, site(f"w{place}", weight, rho=rho, array=array))
        else:
            value = matmul(value, site(f"w{place}", weight.T, rho=rho, axis=-2, array=array))
        value = add(value, site(f"b{place}", bias, rho=rho, array=array))
    return value.gaussian()


def in_standard_errors(value, outputs):
    """How far means and covariances of one input are from those of draws."""
    mean, deviation = outputs.mean(0), outputs - outputs.mean(0)
    products = deviation[:, :, None] * deviation[:, None, :]
    errors = [np.std(part, axis=0) / np.sqrt(len(part)) for part in (outputs, products)]
    moments = np.asarray(value.mean)[0], np.asarray(value.covariance)[0]
    pairs = zip(moments, (mean, products.mean(0)), errors, strict=True)
    return max(float((abs(ours - drawn) / error).max()) for ours, drawn, error in pairs)


def test_a_network_of_chains_has_the_moments_of_draws():
    """10-50-50-2 at τ = 0.5, ρ = 0.45: within 3 standard errors of 10⁵ draws; not without links.

    At other seeds the Gaussian match of the hidden units shows, as it does at ρ = 0: up to 5.
    """
    functions = {"relu": lambda part: np.maximum(part, 0), "tanh": np.tanh}
    for function in functions:
        layers, x, random = network(1)
        outputs = outputs_of(layers, x, functions[function], random)
        assert in_standard_errors(propagated(layers, x, function), outputs) < 3
        assert in_standard_errors(propagated(layers, x, function, rho=0.0), outputs) > 3


def outputs_of(layers, x, function, random):
    """Of networks that are drawn."""
    outputs = np.broadcast_to(x, (COUNT, SIZES[0]))
    for place, (weight, bias) in enumerate(layers):
        hidden = function(outputs) if place else outputs
        outputs = products(weight, hidden, random) + sampled(bias, random)
    return outputs


def products(weight, hidden, random):
    """Draws of a random weight times vectors, which are those of Normals.

    The elements of the weight are correlated with their neighbours alone, so that its rows are.
    """
    scale = TAU * weight
    beside = scale[:, :-1] * scale[:, 1:], hidden[:, :-1] * hidden[:, 1:]
    variance = hidden**2 @ (scale**2).T + 2 * RHO * beside[1] @ beside[0].T
    between = RHO * (hidden[:, :1] * hidden[:, -1:]) * (scale[:-1, -1] * scale[1:, 0])
    noise = random.normal(size=variance.shape)
    deviation, below = np.empty_like(noise), np.zeros(len(noise))  # by Cholesky factors
    for i in range(len(weight)):
        diagonal = np.sqrt(variance[:, i] - below**2)
        deviation[:, i] = diagonal * noise[:, i] + below * noise[:, i - 1]
        below = between[:, i] / diagonal if i + 1 < len(weight) else below
    return hidden @ weight.T + deviation


def test_products_of_draws_have_the_variances_of_the_chain():
    """Of two vectors, by the dense covariance."""
    random = np.random.default_rng(2)
    hidden = random.normal(size=(2, 4))
    drawn = products(MATRIX, np.repeat(hidden, COUNT, 0), random).reshape(2, COUNT, 5)
    for outputs, row in zip(drawn, hidden, strict=True):
        expected = _expected(MATRIX, np.kron(np.eye(5), row))
        np.testing.assert_allclose(np.cov(outputs.T), expected, atol=0.02 * expected.max())


def test_both_frameworks_and_both_layouts_have_the_same_moments():
    layers, x, _ = network(0, [3, 4, 4, 2])

    def moments(*options):
        value = propagated(layers, x, "tanh", *options)
        return value.mean, value.covariance

    with jax.enable_x64(True):
        theirs = by_numpy(lambda: moments("flax", RHO, in_jax))()
    for others in (moments("flax"), theirs):
        for other, exact in zip(others, moments(), strict=True):
            np.testing.assert_allclose(np.asarray(other), exact, rtol=1e-10, atol=1e-15)


def _expected(mean, jacobian):
    """Covariance of a linear map of a chain."""
    flat = mean.reshape(-1)
    return jacobian @ covariance(TAU * flat, RHO) @ jacobian.T


ROWS = np.random.default_rng(4).normal(size=(3, 4))
MATRIX, VECTOR = np.random.default_rng(5).normal(size=(5, 4)), np.array([0.4, -1.0, 0.8, 0.5])
SCALE = np.linspace(0.5, 2, 20).reshape(5, 4)
LINEAR = {
    "rows": (lambda w, x: linear(x, w), lambda i: i @ ROWS[0]),
    "its transpose": (lambda w, x: matmul(x, swap_last(w)), lambda i: i @ ROWS[0]),
    "columns": (lambda w, x: swap_last(matmul(w, swap_last(x))), lambda i: i @ ROWS[0]),
    "scaled": (lambda w, x: linear(x, scale_shift(w, -0.3, 0.1)), lambda i: -0.3 * i @ ROWS[0]),
    "scaled by an array": (
        lambda w, x: linear(x, scale_shift(w, _as(SCALE, x))),
        lambda i: (SCALE * i) @ ROWS[0],
    ),
}


def _as(value, like):
    return torch.tensor(value) if isinstance(like, torch.Tensor) else jnp.asarray(value)


@pytest.mark.parametrize("case", LINEAR)
@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_maps_of_certain_inputs_are_exact(case, flow):
    """Neighbours across rows make outputs dependent."""
    program, of = LINEAR[case]
    found = program(site("w", MATRIX, flow), array(ROWS)).gaussian()
    units = np.eye(20).reshape(20, 5, 4)
    expected = _expected(MATRIX, np.stack([of(unit) for unit in units], axis=1))
    variance = np.asarray(found.variance)[0]
    np.testing.assert_allclose(variance, np.diagonal(expected), rtol=1e-12)
    assert found.has_covariance == (flow == "full")
    if flow == "full":
        np.testing.assert_allclose(np.asarray(found.covariance)[0], expected, rtol=0, atol=1e-14)


def test_a_chain_along_the_outputs_ties_neighbouring_outputs():
    """As where a model contracts the other axis of a weight than the first time."""
    found = matmul(array(ROWS[:, :3] @ np.eye(3, 5)), site("w", MATRIX))
    row = (ROWS[:, :3] @ np.eye(3, 5))[0]
    jacobian = np.kron(row, np.eye(4))
    expected = _expected(MATRIX, jacobian)
    np.testing.assert_allclose(np.asarray(found.covariance)[0], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_scalar_products_with_a_chain_are_exact(flow):
    found = matmul(array(ROWS), site("w", VECTOR, flow))
    expected = np.diagonal(_expected(VECTOR, ROWS))
    np.testing.assert_allclose(np.asarray(found.variance), expected, rtol=1e-12)
    alone = matmul(array(ROWS[0]), site("w", VECTOR, flow))
    assert float(alone.variance) == pytest.approx(expected[0], rel=1e-12)


def test_a_vector_times_random_inputs_has_the_moments_of_draws():
    random = np.random.default_rng(0)
    hidden = linear(torch.tensor(ROWS), site("w", MATRIX))
    found = matmul(hidden, site("v", MATRIX[:, 0]))
    drawn = ROWS @ sampled(MATRIX, random).swapaxes(1, 2)
    products = (drawn * sampled(MATRIX[:, 0], random)[:, None]).sum(-1)
    error = products.std(0) / np.sqrt(COUNT)
    assert (abs(found.mean.numpy() - products.mean(0)) < 4 * error).all()
    np.testing.assert_allclose(found.variance, products.var(0), rtol=0.03)


def test_what_has_no_links_falls_back_on_the_whole_covariance():
    """Weights that are a function of a chain: log-normal ones."""
    weight = site("w", MATRIX)
    positive = apply(activation("exp"), weight).gaussian()
    assert links_of(weight) is not None
    assert links_of(positive) is None
    found = linear(array(ROWS), positive).gaussian()
    own, flat = covariance(TAU * MATRIX.reshape(-1), RHO), MATRIX.reshape(-1)
    mean = np.exp(flat + np.diagonal(own) / 2)
    jacobian = np.kron(np.eye(5), ROWS[0])
    expected = jacobian @ (np.outer(mean, mean) * np.expm1(own)) @ jacobian.T
    np.testing.assert_allclose(np.asarray(found.covariance)[0], expected, rtol=1e-9)


def test_lags_of_a_chain_are_its_covariances():
    vector = site("v", VECTOR)
    exact = covariance(TAU * VECTOR, RHO)
    for offset in range(4):
        found = np.asarray(lag_covariance(vector, (offset,)))
        np.testing.assert_allclose(found, np.diagonal(exact, offset), rtol=1e-12)


def test_weights_that_enter_twice_are_refused():
    weight = site("w", MATRIX[:4])
    hidden = linear(torch.tensor(ROWS), weight)
    with pytest.raises(UnsupportedMoments, match="depend on the same latent site"):
        linear(hidden, weight)


@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_rows_in_a_plate_are_chains_of_their_own(flow):
    flow = propagation_of(flow, "exact")
    parts = (array(part) for part in (MATRIX, TAU * MATRIX, RHO))
    found = linear(array(ROWS), tridiagonal.site("w", *parts, flow, Order((4,))))
    expected = [ROWS[0] @ covariance(TAU * row, RHO) @ ROWS[0] for row in MATRIX]
    np.testing.assert_allclose(np.asarray(found.variance)[0], expected, rtol=1e-12)


ELSEWHERE = {
    "another shape": lambda w: reshape(reshape(w, (20,)), (4, 5)),
    "another shape at once": lambda w: reshape(w, (4, 5)),
    "the sum over rows": lambda w: reduce_sum(w, [0], keepdims=True),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_weights_put_elsewhere_keep_their_covariance(case):
    weight = ELSEWHERE[case](site("w", MATRIX))
    row = np.linspace(-1, 1, weight.shape[1])
    found = linear(array(row[None]), weight).gaussian()
    units = [array(unit.reshape(5, 4)) for unit in np.eye(20)]
    jacobian = np.stack([np.asarray(ELSEWHERE[case](unit)) @ row for unit in units], axis=1)
    expected = _expected(MATRIX, jacobian)
    found = np.asarray(found.variance)[0]
    np.testing.assert_allclose(found, np.diagonal(expected), rtol=1e-10)


@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_sums_over_a_chain_are_exact_in_either_mode(flow):
    """Written as products of elements, and as products of two parts."""
    vector = site("v", VECTOR, flow)
    by_elements = reduce_sum(multiply(vector, array(ROWS)), [1]).gaussian()
    first, last = (index_features(vector, part) for part in (slice(2), slice(2, 4)))
    by_parts = add(matmul(array(ROWS[:, :2]), first), matmul(array(ROWS[:, 2:]), last)).gaussian()
    expected = np.diagonal(_expected(VECTOR, ROWS))
    for found in (by_elements, by_parts):
        np.testing.assert_allclose(np.asarray(found.variance).reshape(-1), expected, rtol=1e-12)


def test_a_batch_of_chains_is_no_weight():
    weight = site("w", np.stack([MATRIX, MATRIX]))
    with pytest.raises(UnsupportedMoments, match="has dependent components"):
        linear(torch.tensor(np.stack([ROWS, ROWS])), weight)
