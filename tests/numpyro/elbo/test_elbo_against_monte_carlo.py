"""The deterministic ELBO equals NumPyro's Monte Carlo estimate of the same model and guide."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_moments import DeterministicELBO, DVIGuide
from tests.checks.marks import with_slow
from tests.numpyro import models
from tests.oracles.numpyro_samples import trace_elbo, train

# Share of the loss by which the Gaussian matching may differ, on top of three standard errors.
CASES = {
    "linear regression": (models.linear_regression, "full", 0.0),
    "one hidden layer": (models.sequential(), "full", 0.005),
    "one hidden layer of tanh": (models.sequential(1, jnp.tanh), "full", 0.005),
    "three hidden layers": (models.sequential(3), "full", 0.02),
    "residual": (models.residual, "full", 0.01),
    # 1/scale² = exp(−h) weighs the tails of h, which a matched Gaussian has too light: 3.1 % off
    "heteroscedastic": (models.heteroscedastic, "full", 0.04),
    "one hidden layer, diagonal": (models.sequential(), "diagonal", 0.005),
}


@pytest.mark.parametrize("name", with_slow(CASES, "three hidden layers"))
def test_regression(name):
    model, covariance, share = CASES[name]
    x, y = models.data()
    guide = DVIGuide()
    loss, params = train(model, guide, DeterministicELBO(covariance=covariance), x, y)
    expected, error = trace_elbo(model, guide, params, x, y)
    assert abs(loss - expected) < 3 * error + share * abs(expected)


def test_classification_by_delta_and_its_jensen_bound_and_by_draws():
    x, y = models.data()
    labels = models.classes(y)
    guide = DVIGuide()
    delta, params = train(models.classifier, guide, DeterministicELBO(), x, labels)
    expected, error = trace_elbo(models.classifier, guide, params, x, labels)
    assert abs(delta - expected) < 3 * error + 0.01 * expected
    elbos = (
        DeterministicELBO(categorical="jensen"),
        DeterministicELBO(categorical="sample", categorical_draws=4000),
    )
    arguments = models.classifier, guide, x, labels
    jensen, drawn = jax.jit(
        lambda params: [elbo.loss(jax.random.key(3), params, *arguments) for elbo in elbos]
    )(params)
    assert jensen > expected - 3 * error
    assert abs(drawn - expected) < 5 * error + 0.005 * expected


@pytest.mark.slow
def test_dvi_rules_agree_with_the_exact_ones():
    x, y = models.data()
    model, guide = models.sequential(3), DVIGuide(init_scale=0.4)
    _, params = train(model, guide, DeterministicELBO(), x, y, steps=1)
    losses = [
        DeterministicELBO(rules=rules).loss(jax.random.key(0), params, model, guide, x, y)
        for rules in ("exact", "dvi")
    ]
    assert losses[1] == pytest.approx(float(losses[0]), rel=1e-4)
    assert losses[1] != losses[0]


@pytest.mark.slow
def test_gradients_match_finite_differences():
    with jax.enable_x64(True):
        x, y = (np.asarray(array, np.float64) for array in models.data())
        model, guide, elbo = models.sequential(2), DVIGuide(), DeterministicELBO()
        _, params = train(model, guide, elbo, x, y, steps=1)

        def loss(values):
            return elbo.loss(jax.random.key(0), values, model, guide, x, y)

        gradients = jax.grad(loss)(params)
        for name, value in params.items():
            step = 1e-6 * np.eye(1, value.size).reshape(value.shape)
            moved = [loss({**params, name: value + sign * step}) for sign in (1, -1)]
            difference = (moved[0] - moved[1]) / 2e-6
            assert gradients[name].ravel()[0] == pytest.approx(
                float(difference), rel=1e-4, abs=1e-6
            )
