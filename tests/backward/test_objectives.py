"""The objective, its second derivatives, predictions and checks with covariance="backward"."""

import functools

import jax
import numpy as np
import pytest

from tests.checks.jaxprs import by_numpy
from tests.checks.marks import IN_PYRO
from tests.fitting.models import X, Y, fresh, network, started
from tests.response.models import doubles

ROWS, NOISE = 24, 0.3
rng = np.random.default_rng(3)
INPUTS = rng.normal(size=(ROWS, 2))
CURVE = np.sin(2 * INPUTS[:, 0]) + INPUTS[:, 1] + 0.3 * rng.normal(size=ROWS)


def backward(host, **options):
    return host.package.DeterministicELBO(covariance="backward", **options)


def net(host, layers=2, width=4):
    """A network of tanh, and a Normal."""
    return network(host, lambda out: host.dist.Normal(out, NOISE), layers=layers, width=width)


def loss_at(host, elbo, model, guide, given, *data):
    """The loss at parameters that :func:`started` made."""
    if host.name == "pyro":
        return float(elbo.loss(model, guide, *data))
    run = by_numpy(lambda *arrays: elbo.loss(jax.random.key(0), *given, model, guide, *arrays))
    return float(run(*data))


def test_newton_finds_the_posterior_of_a_linear_model(host):
    """The curvature of the loss, by which linear response corrects, is exact there."""
    with doubles(host):
        x, y = (host.array(part.astype(float)) for part in (X, Y))
        options = {"method": "newton", "objective": backward(host), "progress_bar": False}
        fit = host.fit(host.regression, x, y, **options)
        response = host.package.linear_response(
            host.regression, fit, x, y, objective=backward(host)
        )
    precision = np.eye(3) + X.T.astype(float) @ X / NOISE**2
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(host.location(fit), covariance @ X.T @ Y / NOISE**2, rtol=1e-6)
    np.testing.assert_allclose(response.covariance("weight"), covariance, rtol=1e-6, atol=1e-10)


@functools.cache
def by_newton(name):
    """A small network, its data, and their optimum, which two tests look at."""
    host = fresh(name)
    with doubles(host):
        data = host.array(INPUTS), host.array(CURVE)
        model = net(host, 1, 2)
        options = {"method": "newton", "objective": backward(host), "seed": 2}
        return model, data, host.fit(model, *data, **options)


def test_newton_and_lbfgs_meet(host):
    model, data, newton = by_newton(host.name)
    with doubles(fresh(host.name)):
        lbfgs = host.fit(model, *data, method="lbfgs", objective=backward(host), seed=2)
    assert "converged" in str(newton)
    assert newton.losses[-1] == pytest.approx(lbfgs.losses[-1], rel=1e-6)


def test_batches_average_to_the_loss_of_all_rows(host):
    model, guide = host.subsampled, host.package.DVIGuide()
    given = started(host, model, guide, host.x, host.y)
    whole = loss_at(host, backward(host), model, guide, given, host.x, host.y)
    parts = [
        loss_at(host, backward(host), model, guide, given, *host.rows(start, start + 24))
        for start in range(0, len(X), 24)
    ]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-5)


@IN_PYRO
def test_small_powers_of_the_density_are_the_elbo(host):
    """BB-α for α → 0, where the weights still vary much."""
    with doubles(host):
        data = host.array(INPUTS), host.array(CURVE)
        model, guide = net(host), host.package.DVIGuide(init_scale=0.3)
        given = started(host, model, guide, *data)
        elbo = loss_at(host, backward(host), model, guide, given, *data)
        power = host.package.BBAlphaELBO(alpha=1e-5, covariance="backward")
        assert loss_at(host, power, model, guide, given, *data) == pytest.approx(elbo, rel=1e-4)
        diagonal = host.package.BBAlphaELBO(alpha=1e-5, covariance="diagonal")
        assert loss_at(host, diagonal, model, guide, given, *data) != pytest.approx(elbo, rel=1e-3)


def test_losses_of_several_parameters_at_once(double_precision_in_jax):
    """vmap over parameters, in NumPyro."""
    host = fresh("numpyro")
    data = host.array(INPUTS), host.array(CURVE)
    model, guide = net(host), host.package.DVIGuide(init_scale=0.3)
    (params,) = started(host, model, guide, *data)

    def loss(params):
        return backward(host).loss(jax.random.key(0), params, model, guide, *data)

    places = [params, jax.tree.map(lambda part: 0.7 * part, params)]
    stacked = jax.tree.map(lambda first, second: np.stack([first, second]), *places)
    together = by_numpy(jax.vmap(loss))(stacked)
    one = by_numpy(loss)
    alone = [float(one(place)) for place in places]
    np.testing.assert_allclose(together, alone, rtol=1e-10)
    assert alone[0] != pytest.approx(alone[1], rel=1e-3)


def test_diagnosis_takes_the_objective(host):
    model, data, fit = by_newton(host.name)
    with doubles(fresh(host.name)):
        found = host.package.diagnose(model, fit, *data, objective=backward(host), verbose=False)
    assert "optimum" in str(found)
    assert not any("optimum" in str(problem) for problem in found.problems)
