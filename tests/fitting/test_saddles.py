"""Training does not end at a saddle: guides begin where products of sites have no slope."""

from __future__ import annotations

import numpy as np
import pytest

from moment_calculus.optimisation.curvature import PRODUCTS, negative_direction, step_off_saddle
from moment_calculus.optimisation.rounds import DeterministicLoss

DATA = np.full(15, 2.0)


def product_of_sites(host):
    """A model whose mean is a product of two sites."""

    def model(y):
        first, second = (host.language.sample(name, host.dist.Normal(0.0, 1.0)) for name in "ab")
        with host.language.plate("data", len(y)):
            host.language.sample("obs", host.dist.Normal(first * second, 0.5), obs=y)

    return model


@pytest.mark.parametrize(
    ("host", "method", "float64"),
    [
        ("pyro", "lbfgs", True),
        ("pyro", "adam", False),
        ("numpyro", "lbfgs", True),
        ("numpyro", "lbfgs", False),
    ],
    indirect=["host"],
)
def test_a_saddle_is_left_for_the_optimum(host, method, float64):
    """Newton's method finds the optimum; the saddle is 115 nats above it."""
    data = host.array(DATA.astype(np.float32))
    options = {"tolerance": 1e-5, "learning_rate": 0.2} if method == "adam" else {}
    options |= {"method": method, "float64": float64, "progress_bar": False}
    fit = host.fit(product_of_sites(host), data, **options)
    assert fit.converged, fit.reason
    assert fit.saddles == 1
    assert fit.loss == pytest.approx(10.16603, rel=1e-6 if float64 else 1e-4)


@pytest.mark.parametrize("host", ["numpyro"], indirect=True)
def test_adam_leaves_a_saddle_without_a_tolerance(host):
    data = host.array(DATA.astype(np.float32))
    options = {"steps": 400, "learning_rate": 0.05, "progress_bar": False}
    fit = host.fit(product_of_sites(host), data, **options)
    assert (fit.saddles, fit.steps, fit.converged) == (1, 400, False)
    assert fit.loss == pytest.approx(10.16603, rel=1e-3)


@pytest.mark.parametrize(
    ("host", "method", "float64"),
    [("pyro", "lbfgs", True), ("numpyro", "adam", False)],
    indirect=["host"],
)
def test_an_optimum_with_a_redundant_direction_is_no_saddle(host, method, float64):
    """The two coefficients of one column have nothing but their priors between them."""

    def model(x, y):
        first, second = (host.language.sample(name, host.dist.Normal(0.0, 1e3)) for name in "ab")
        with host.language.plate("data", len(y)):
            host.language.sample("obs", host.dist.Normal((first + second) * x, 0.3), obs=y)

    tolerance = 1e-6 if method == "adam" else None
    options = {"method": method, "tolerance": tolerance, "float64": float64, "steps": 4000}
    fit = host.fit(model, host.x[:, 0], host.y, progress_bar=False, **options)
    assert fit.converged, fit.reason
    assert fit.saddles == 0


def quadratic(values, precision=2e-16):
    """½ xᵀ A x with eigenvalues, and a quartic that bounds it from below."""
    basis, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(len(values), len(values))))
    matrix = basis * values @ basis.T
    rounded = lambda part: part if precision < 1e-8 else part.astype(np.float32)  # noqa: E731

    def value_and_slope(place):
        square = place @ place
        value = 100 + 0.5 * place @ matrix @ place + 0.01 * square**2
        slope = rounded(matrix @ place + 0.04 * square * place)
        return float(rounded(np.asarray(value))), np.asarray(slope, float)

    one = lambda place: np.ones_like(place)  # noqa: E731
    return matrix, DeterministicLoss(
        value_and_slope, lambda x: matrix, lambda x, d: matrix @ d, one, precision
    )


@pytest.mark.parametrize("precision", [2e-16, 1.2e-7])
@pytest.mark.parametrize("least", [-3.0, -0.1, 0.0, 1e-9, 0.5])
def test_one_negative_eigenvalue_among_many_is_found(least, precision):
    spectrum = np.concatenate([[least], np.geomspace(0.3, 20.0, 299)])
    matrix, objective = quadratic(spectrum, precision)
    lower = step_off_saddle(objective, np.zeros(300), 100.0)
    assert (lower is not None) == (least < 0)
    if lower is not None:
        place, loss = lower
        assert loss < 100.0
        assert place @ matrix @ place < 0
        assert loss == pytest.approx(objective.value_and_slope(place)[0])


def test_the_look_takes_no_more_slopes_than_it_says():
    count = 0

    def product(direction):
        nonlocal count
        count += 1
        return np.geomspace(1e-6, 1.0, 500) * direction

    assert negative_direction(product, 500) is None
    assert count <= PRODUCTS


def test_a_slope_that_is_left_is_no_saddle():
    """The loss falls on one side, but not on both."""
    convex = lambda x: (float(100 + x @ x / 2 + x.sum()), x + 1.0)  # noqa: E731
    objective = DeterministicLoss(convex, lambda x: np.eye(4), lambda x, d: d, np.ones_like, 2e-16)
    assert step_off_saddle(objective, np.zeros(4), 100.0) is None
