"""Calls are recognised by name and origin; conditions and recognised scales reach likelihoods."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import nn, scipy
from numpy.testing import assert_allclose

from moment_calculus.functions.table import activation
from moment_calculus.values.deferred import unscaled
from numpyro_moments import SVI, DeterministicELBO, DVIGuide, propagate
from numpyro_moments.rules.programs.calls import FUNCTIONS
from tests.checks.jaxprs import by_numpy
from tests.numpyro.functions.elementwise import grid, noisy, traced


@jax.jit
def softplus(x):
    """Not JAX's, though it has its name."""
    return jnp.tanh(x)


@jax.custom_jvp
def relu(x):
    return jnp.minimum(x, 0.0)


relu.defjvp(lambda primals, tangents: (relu(*primals), tangents[0]))


def test_a_namesake_of_the_users_is_another_function():
    assert traced(softplus, np.float64).recognised_function == activation("tanh")
    found = traced(relu, np.float64).recognised_function
    assert_allclose(found(np.array([-2.0, 2.0])), [-2.0, 0.0])


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"logaddexp", "cholesky"}))
def test_functions_of_jax_are_recognised(name):
    function = scipy.special.log_ndtr if name == "log_ndtr" else getattr(nn, name)
    assert "primitive" not in repr(traced(function, np.float32))
    assert unscaled(traced(function, np.float32).function).name in (
        name,
        name.replace("soft_", "soft").replace("log_s", "logs").replace("hard_", "hard"),
        "hardswish",
    )


def probit(probability):
    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", dist.Bernoulli(probs=probability(x @ w)), obs=y)

    return model


def test_a_probit_model_has_its_closed_form():
    """Φ arrives spelled out in primitives; its logarithm is that of the normal distribution."""
    x, y = np.array([[0.3, -1.0], [2.0, 0.1], [-0.5, 0.5]]), np.array([1.0, 0.0, 1.0])

    def loss(probability):
        svi = SVI(probit(probability), DVIGuide(), DeterministicELBO())
        loss_of = by_numpy(lambda key: svi.evaluate(svi.init(key, x, y), x, y))
        return loss_of(jax.random.key(0))

    spelled = loss(scipy.special.ndtr)
    assert_allclose(spelled, loss(lambda z: 0.5 + 0.5 * scipy.special.erf(z / np.sqrt(2))), 1e-5)
    assert np.isfinite(spelled)


def test_a_scale_by_hand_is_positive():
    """The stable softplus is known to be positive once it is recognised."""
    by_hand = lambda h: jnp.maximum(h, 0) + jnp.log1p(jnp.exp(-jnp.abs(h)))  # noqa: E731
    chosen = lambda h: jnp.where(h > 0, 1 + h * h, jnp.exp(h))  # noqa: E731

    @by_numpy
    def program():
        return (
            propagate(lambda h: jnp.log(by_hand(h)), noisy()).mean,
            propagate(lambda h: jnp.log(chosen(h)), noisy()).mean,
        )

    with jax.enable_x64(True):
        logarithm, choice = program()
    assert_allclose(logarithm, grid(lambda h: jnp.log(by_hand(h)))[0], rtol=1e-7)
    assert_allclose(choice, grid(lambda h: jnp.log(chosen(h)))[0], rtol=1e-5, atol=1e-6)


def test_functions_of_shifted_inputs_share_their_variable():
    """Certain arrays between the layers do not hide that h is the variable."""

    def function(x):
        h = x * np.array([1.5, -0.5, 2.0]) + np.array([0.1, 0.2, 0.3])
        return h * nn.sigmoid(1.702 * h)

    value = traced(function, np.float64)
    assert value.recognised_function.activation == activation("silu")
    mean, variance = value.gaussian().mean, value.gaussian().variance
    expected, spread = grid(function)
    assert_allclose(mean, expected, rtol=1e-6)
    assert_allclose(variance, spread, rtol=1e-6)
