"""Sums and products of functions of one hidden layer, against samples."""

import numpy as np
import pytest
import torch

from moment_calculus.functions.table import ReLU, Sigmoid, Tanh
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import covariances, cross_covariance

SAMPLES = 400_000
generator = torch.Generator().manual_seed(8)
A, B, C = (0.5 * torch.randn(3, 3, generator=generator, dtype=torch.double) for _ in range(3))
MEAN, VARIANCE = torch.tensor([0.5, -0.3, 0.1]).double(), torch.tensor([1.2, 0.6, 0.9]).double()
IDENTITY = torch.eye(3, dtype=torch.double)
DRAWS = MEAN + VARIANCE.sqrt() * torch.randn(SAMPLES, 3, generator=generator, dtype=torch.double)


def relu(x):
    return apply(ReLU(), x) if hasattr(x, "sites") else torch.relu(x)


def sigmoid(x):
    return apply(Sigmoid(), x) if hasattr(x, "sites") else torch.sigmoid(x)


def tanh(x):
    return apply(Tanh(), x) if hasattr(x, "sites") else torch.tanh(x)


def through(matrix, x):
    return linear(x, matrix) if hasattr(x, "sites") else x @ matrix.T


def plus(x, y):
    return add(x, y) if hasattr(x, "sites") else x + y


def minus(x, y):
    return subtract(x, y) if hasattr(x, "sites") else x - y


def times(x, y):
    return multiply(x, y) if hasattr(x, "sites") else x * y


def doubled(x):
    return scale_shift(x, 2.0, 1.0) if hasattr(x, "sites") else 2 * x + 1


SUMS = {
    "two functions": lambda h: plus(relu(through(A, h)), sigmoid(through(B, h))),
    "a difference": lambda h: minus(relu(through(A, h)), relu(through(B, h))),
    "an affine image": lambda h: minus(doubled(relu(through(A, h))), relu(through(B, h))),
    "of the whole value": lambda h: plus(h, relu(through(IDENTITY, h))),
    "of the value itself": lambda h: plus(h, relu(h)),
    "a map of the older": lambda h: minus(through(C, relu(through(A, h))), sigmoid(through(B, h))),
}
PRODUCTS = {
    "relu and sigmoid": lambda h: times(relu(through(A, h)), sigmoid(through(B, h))),
    "tanh and sigmoid": lambda h: times(tanh(through(A, h)), sigmoid(through(A + B, h))),
    "a gate": lambda h: times(through(A, h), sigmoid(through(B, h))),
    "a gate of the value": lambda h: times(h, sigmoid(through(B, h))),
}


def errors(value, samples):
    """Errors of mean and variance in standard errors of the sampled ones."""
    centred = samples - samples.mean(0)
    variance = centred.square().mean(0)
    noise = (variance / SAMPLES).sqrt(), centred.square().std(0) / SAMPLES**0.5
    ours = value.gaussian()
    return (
        (ours.mean - samples.mean(0)).abs() / noise[0],
        (ours.variance - variance).abs() / noise[1],
    )


def latent(mode):
    return site_value("h", MEAN, VARIANCE, propagation_of(mode, "exact"))


# the diagonal treatment drops the covariance inside a map
MODES = [(name, mode) for name in (*SUMS, *PRODUCTS) for mode in ("full", "diagonal")]
MODES.remove(("a map of the older", "diagonal"))


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_mean_and_variance(name, mode):
    program = {**SUMS, **PRODUCTS}[name]
    for error in errors(program(latent(mode)), program(DRAWS)):
        assert error.max() < 4.5


@pytest.mark.parametrize("name", SUMS)
def test_covariance_of_a_sum(name):
    samples = SUMS[name](DRAWS)
    true = torch.cov(samples.T)
    ours = SUMS[name](latent("full")).gaussian().joint_covariance()
    size = torch.outer(true.diagonal(), true.diagonal()).sqrt()
    assert ((ours - true).abs() / size).max() < 0.01
    assert torch.linalg.eigvalsh(ours)[0] > 0


@pytest.mark.parametrize("name", PRODUCTS)
def test_covariance_of_a_product_is_near_and_definite(name):
    samples, value = PRODUCTS[name](DRAWS), PRODUCTS[name](latent("full")).gaussian()
    true, ours = torch.cov(samples.T), value.joint_covariance()
    size = torch.outer(true.diagonal(), true.diagonal()).sqrt()
    torch.testing.assert_close(ours.diagonal(), value.variance)
    assert ((ours - true).abs() / size).max() < 0.2
    assert torch.linalg.eigvalsh(ours)[0] > 0


def test_a_product_with_itself_cancels_in_a_difference():
    value = PRODUCTS["relu and sigmoid"](latent("full"))
    assert subtract(value, value).gaussian().variance.abs().max() < 1e-12


def test_differences_of_products_keep_a_positive_variance():
    h = latent("full")
    gate, other = sigmoid(through(B, h)), sigmoid(through(1.1 * B, h))
    rectified = relu(through(A, h))
    result = subtract(multiply(rectified, gate), multiply(rectified, other)).gaussian()
    assert result.variance.min() > 0
    assert np.linalg.eigvalsh(result.joint_covariance().numpy())[0] > -1e-12


RHO = 0.9
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
FIRST = torch.as_tensor(np.repeat(NODES, 60))
SECOND = RHO * FIRST + np.sqrt(1 - RHO**2) * torch.as_tensor(np.tile(NODES, 60))
MASSES = torch.as_tensor(np.outer(WEIGHTS, WEIGHTS).ravel() / WEIGHTS.sum() ** 2)
BENT = {
    "function after the product": lambda u, v: plus(times(u, v), sigmoid(doubled(u))),
    "function before the product": lambda u, v: (lambda f: plus(times(u, v), f))(tanh(v)),
    "difference": lambda u, v: minus(sigmoid(u), times(v, u)),
    "square": lambda u, v: plus(times(u, u), tanh(v)),
    "through sums": lambda u, v: minus(plus(times(u, v), u), plus(v, tanh(plus(u, v)))),
}


@pytest.mark.parametrize("name", BENT)
def test_a_product_meets_the_curvature_of_a_function(name):
    """Exact for Gaussians: what is of second order in the one meets what is so in the other."""
    samples = BENT[name](FIRST, SECOND)
    mean = MASSES @ samples
    zero, one = torch.zeros(2, dtype=torch.double), torch.ones(2, dtype=torch.double)
    noise = site_value("w", zero, one, propagation_of("full", "exact"))
    first, second = index(noise, 0), index(noise, 1)
    mixed = add(scale_shift(first, RHO, 0.0), scale_shift(second, (1 - RHO**2) ** 0.5, 0.0))
    ours = BENT[name](first, mixed).gaussian()
    torch.testing.assert_close(ours.mean, mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.variance, MASSES @ (samples - mean) ** 2, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("first", "second"),
    [(0, 1), (-1, 0), (slice(0, 1), slice(1, 2)), (slice(0, 2), slice(2, 3)), (1, 1)],
)
def test_features_of_a_layer_meet_as_in_its_whole_covariance(covariance, first, second):
    """What is between two features alone, against the covariance of all of them."""
    flow, random = propagation_of(covariance, "exact"), np.random.default_rng(0)

    def latent(name, *shape):
        mean, variance = random.normal(size=shape), random.uniform(0.1, 0.3, size=shape)
        return site_value(
            name, torch.as_tensor(mean), torch.as_tensor(variance), flow, event_dim=len(shape)
        )

    hidden = apply(ReLU(), linear(torch.as_tensor(random.normal(size=(5, 2))), latent("a", 4, 2)))
    output = add(linear(hidden, latent("b", 3, 4)), latent("c", 3)).gaussian()
    left, right = (index(output, (..., key)) for key in (first, second))
    found = cross_covariance(scale_shift(left, -1.0, 2.0), scale_shift(right, 0.5))
    rows, columns = (_as_list(key) for key in (first, second))
    whole = np.asarray(output.joint_covariance())[:, rows][:, :, columns]
    np.testing.assert_allclose(np.asarray(found), -0.5 * whole, rtol=1e-5, atol=1e-6)


def _as_list(key):
    return list(range(3))[key] if isinstance(key, slice) else [key]


def test_two_outputs_of_a_layer_do_not_need_the_covariance_of_all():
    flow = propagation_of("full", "exact")
    weights = (
        site_value("a", A, A * A, flow, event_dim=2),
        site_value("b", B, B * B, flow, event_dim=2),
    )
    hidden = apply(ReLU(), linear(C, weights[0]))
    output = add(linear(hidden, weights[1]), site_value("c", MEAN, VARIANCE, flow, event_dim=1))
    assert cross_covariance(index(output, (..., 0)), index(output, (..., 2))) is not None
    assert output.spread.is_pending


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")
def test_a_chain_computes_each_covariance_once(monkeypatch):
    """Of n steps, exponential smoothing by a random share, not all of them for each step anew."""
    computed = []
    plain = covariances.Query._covariance

    def counted(*arguments):
        computed.append(arguments)
        return plain(*arguments)

    monkeypatch.setattr(covariances.Query, "_covariance", counted)
    counts = []
    for steps in (5, 10, 20):
        computed.clear()
        flow, one = propagation_of("full", "exact"), torch.ones(())
        share = sigmoid(site_value("share", one, 0.3 * one, flow, event_dim=0))
        level = site_value("start", one, 0.2 * one, flow, event_dim=0)
        for _ in range(steps):
            level = add(multiply(share, 0.7 * one), multiply(scale_shift(share, -1.0, 1.0), level))
        counts.append(len(computed))
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])
