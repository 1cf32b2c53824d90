"""The deterministic ELBO equals NumPyro's Monte Carlo estimate of the same model and guide."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from numpyro_moments import DeterministicELBO, DVIGuide
from tests.checks.marks import with_slow
from tests.numpyro import models
from tests.oracles.numpyro_samples import all_losses, assert_equals_trace_elbo

# Share of the loss by which the Gaussian matching may differ, on top of three standard errors.
# Other models and their gradients have the losses of Pyro's front end, which draws are beside.
CASES = {
    "linear regression": (models.linear_regression, 0.0),
    "one hidden layer of tanh": (models.sequential(1, jnp.tanh), 0.005),
    "three hidden layers": (models.sequential(3), 0.02),
}


@pytest.mark.parametrize("name", with_slow(CASES, "three hidden layers"))
def test_regression(name):
    model, share = CASES[name]
    assert_equals_trace_elbo(model, DVIGuide(init_scale=0.1), *models.data(), share=share)


def test_classification_by_delta_and_its_jensen_bound_and_by_draws():
    x, y = models.data()
    options = {}, {"categorical": "jensen"}, {"categorical": "sample", "categorical_draws": 4000}
    (delta, jensen, drawn), expected, error = all_losses(
        models.classifier,
        DVIGuide(init_scale=0.1),
        x,
        models.classes(y),
        elbos=[DeterministicELBO(**option) for option in options],
    )
    assert abs(delta - expected) < 3 * error + 0.01 * expected
    assert jensen > expected - 3 * error
    assert abs(drawn - expected) < 5 * error + 0.005 * expected
