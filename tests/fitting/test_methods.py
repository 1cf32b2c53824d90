"""Training by one verb, in both frameworks."""

import jax.numpy as jnp
import numpy as np
import pyro
import pytest
import torch

from moment_inference.optimisation.minimiser import PRODUCTS, negative_direction, step_off_saddle
from moment_inference.optimisation.rounds import DeterministicLoss
from tests.checks.marks import IN_PYRO
from tests.fitting.models import fresh

rng = np.random.default_rng(1)
X = rng.normal(size=(30, 3)) * [1.0, 1e3, 1e-2]
SLOPES = np.array([1.0, -2e-3, 50.0])
Y = X @ SLOPES + 0.5 * rng.normal(size=30)
PRIOR = np.array([10.0, 1.0, 1e3])
DETERMINISTIC = ["newton", "lbfgs"]
MANY = 510  # slopes, whose locations and scales are more than a dense Hessian is taken of
WIDE = rng.normal(size=(600, MANY)) * np.geomspace(1e-2, 1e2, MANY)
HEIGHTS = WIDE @ (rng.normal(size=MANY) / np.geomspace(1e-2, 1e2, MANY)) + rng.normal(size=600)


def regression(host, scale=0.5, family="Normal", prior=PRIOR):
    """Linear, or logistic, in the precision of its data."""

    def model(x, y):
        deviations = host.array(np.asarray(prior, str(x.dtype).removeprefix("torch.")))
        slopes = host.language.sample("slopes", host.dist.Normal(0.0, deviations).to_event(1))
        normal = lambda place: host.dist.Normal(place, scale)  # noqa: E731
        logistic = lambda place: host.dist.Bernoulli(logits=place)  # noqa: E731
        observed = {"Normal": normal, "Bernoulli": logistic}[family](x @ slopes)
        host.observe(y, observed, y)

    return model


def trained(host, model=None, data=(X, Y), **options):
    """A fit, and the locations and scales of its guide."""
    # Data are in single precision in Pyro, and rounded before they are doubled.
    kind = np.float32 if host.name == "pyro" else np.float64
    arrays = [host.array(part.astype(kind)) if host.name == "pyro" else part for part in data]
    fit = host.fit(model or regression(host), *arrays, **options)
    parts = ("slopes_auto_loc", "slopes_auto_scale")
    if host.name == "pyro":
        parts = ("DVIGuide.locs.slopes", "DVIGuide.scales.slopes")
    return fit, *(np.asarray(fit.params[name]) for name in parts)


@pytest.mark.parametrize("method", DETERMINISTIC)
def test_a_conjugate_posterior_is_found(host, method):
    """The mean of the exact posterior, and the conditional standard deviations."""
    fit, loc, scale = trained(host, method=method, float64=True)
    precision = X.T @ X / 0.25 + np.diag(PRIOR**-2.0)
    exact = np.linalg.solve(precision, X.T @ Y / 0.25)
    assert fit.converged, fit.reason
    assert loc.dtype == np.float64
    np.testing.assert_allclose(loc, exact, rtol=1e-4)
    np.testing.assert_allclose(scale, np.diag(precision) ** -0.5, rtol=1e-4)
    assert fit.steps == len(fit.losses) - 1 <= 110
    assert fit.loss == fit.losses[-1] <= min(fit.losses) + 1e-9
    assert set(fit.seconds) == {"preparing", "fitting"}
    if method == "newton":
        assert fit.decrement <= 1e-9
    assert torch.get_default_dtype() is torch.float32  # double precision ends with the fit
    assert jnp.ones(()).dtype == jnp.float32


@IN_PYRO
def test_beyond_a_dense_hessian_newton_finds_the_conjugate_posterior(host):
    model = regression(host, 1.0, prior=np.full(MANY, 10.0))
    fit, loc, _ = trained(host, model, (WIDE, HEIGHTS), method="newton", float64=True)
    precision = WIDE.T @ WIDE + np.eye(MANY) / 100
    exact = np.linalg.solve(precision, WIDE.T @ HEIGHTS)
    deviations = np.diag(precision) ** -0.5
    assert fit.converged, fit.reason
    assert fit.decrement <= 1e-9
    np.testing.assert_allclose(loc / deviations, exact / deviations, atol=1e-3)


@IN_PYRO
def test_adam_lowers_the_loss(host):
    fit, _, _ = trained(host, method="adam", steps=30, learning_rate=1e-3)
    assert (fit.steps, fit.converged, fit.reason) == (30, False, "ran 30 steps")
    assert fit.losses[-1] < fit.losses[0]


def test_single_precision_converges(host):
    fit, loc, _ = trained(host, method="newton")
    exact, _, _ = trained(host, method="newton", float64=True)
    assert fit.converged
    assert loc.dtype == np.float32
    assert fit.loss == pytest.approx(exact.loss, rel=1e-5)


def fitted(guide, **options):
    """A fit in Pyro with another guide, which has the model."""
    host = fresh("pyro")
    data = host.array(X).float(), host.array(Y).float()
    model = regression(host)
    return host.package.fit(model, guide(model), *data, by_draws=False, **options)


def test_a_fit_goes_on_in_double_precision():
    """Those of the fit; the guide itself stays in the precision of its model."""
    host = fresh("pyro")
    guide, data = host.package.DVIGuide(), (host.array(X).float(), host.array(Y).float())
    host.package.fit(regression(host), guide, *data, method="lbfgs", steps=3)
    fit = host.package.fit(regression(host), guide, *data, method="newton", float64=True)
    assert fit.decrement <= 1e-9
    assert all(value.dtype == torch.float64 for value in fit.params.values())
    assert all(value.dtype == torch.float32 for value in guide.parameters())


@pytest.mark.parametrize(
    "name", ["AutoNormal", "AutoMultivariateNormal", "AutoLowRankMultivariateNormal"]
)
def test_guides_of_pyro_are_trained(name):
    """The triangle above a Cholesky factor's, and rotations of a low-rank one, are redundant."""
    fit = fitted(getattr(pyro.infer.autoguide, name), method="newton", float64=True)
    assert fit.converged
    assert np.isfinite(fit.decrement)
    assert fit.steps < 100
    assert type(fit.guide).__name__ == name
    if name == "AutoNormal":
        assert set(fit.params) == {"AutoNormal.locs.slopes", "AutoNormal.scales.slopes"}


REFUSED = {
    "steps must be at least 1, got 0": {"method": "newton", "steps": 0},
    "one of adam, newton, lbfgs, got 'sgd'": {"method": "sgd"},
    r"not deterministic: .* and .* train by method='adam'": {"method": "newton"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_that_cannot_be_served_are_refused(host, message):
    options = REFUSED[message]
    if "deterministic" in message:
        options = {**options, "objective": host.package.DeterministicELBO(sample_sites=["slopes"])}
    with pytest.raises(ValueError, match=message):
        trained(host, **options)


@pytest.mark.parametrize("method", ["newton", "lbfgs"])
def test_a_rule_book_that_is_no_bound_is_to_be_acknowledged(host, method):
    objective = host.package.DeterministicELBO(rules="first_order")
    with pytest.raises(ValueError, match=r"'first_order' is no bound.*acknowledge=True"):
        trained(host, objective=objective, method=method)
    options = {"acknowledge": True} if method == "newton" else {"rules": "dvi"}
    objective = host.package.DeterministicELBO(rules=options.pop("rules", "first_order"))
    assert trained(host, objective=objective, method=method, steps=2, **options)[0].steps


def test_nothing_to_train_is_refused(host):
    def certain(y):
        host.observe(y, host.dist.Normal(0.0, 1.0), y)

    with pytest.raises(ValueError, match="no parameters: there is nothing to train"):
        host.fit(certain, host.array(Y), method="lbfgs")


DATA = np.full(15, 2.0)


def product_of_sites(host):
    """A model whose mean is a product of two sites."""

    def model(y):
        first, second = (host.language.sample(name, host.dist.Normal(0.0, 1.0)) for name in "ab")
        host.observe(y, host.dist.Normal(first * second, 0.5), y)

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
        host.observe(y, host.dist.Normal((first + second) * x, 0.3), y)

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
