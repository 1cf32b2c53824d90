"""Loops of JAX give what the same program in Python gives."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.loops.helpers import (
    STEPS,
    WIDTH,
    X,
    layers,
    plain_walk,
    relu_layer,
    residual_layer,
    same,
    uncertain,
    walk,
)
from tests.numpyro.one_program import propagate_traced

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def loops_in(program, *shapes):
    """Whether what evaluates a program has a loop of JAX."""
    equations = jax.make_jaxpr(program)(*shapes).jaxpr.eqns
    return any(equation.primitive.name == "scan" for equation in equations)


@pytest.mark.parametrize(
    ("step", "covariance"),
    [(relu_layer, "full"), (relu_layer, "diagonal"), (residual_layer, "diagonal")],
)
@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
def test_layers_with_stacked_weights_equal_the_python_loop(step, covariance):
    looped, plain = layers(lambda: jnp.asarray(X), step)
    weights = uncertain(STEPS, WIDTH, WIDTH)
    # both traced: outside of a loop known moments choose the number of terms of a series
    found, expected = (
        traced(fn, covariance)(weights.mean, weights.variance) for fn in (looped, plain)
    )
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-12, rtol=1e-10)


def traced(fn, covariance):
    @by_numpy
    def arrays(mean, variance):
        moments = propagate(fn, Moments(mean, variance=variance), covariance=covariance)
        full = moments.covariance
        return moments.mean, moments.variance if full is None else full

    return arrays


def test_layers_with_stacked_weights_stay_a_loop():
    looped, plain = layers(lambda: jnp.asarray(X), relu_layer)
    weights = uncertain(STEPS, WIDTH, WIDTH)
    mean = lambda fn: lambda m: propagate(fn, Moments(m, variance=weights.variance)).mean  # noqa: E731
    assert loops_in(mean(looped), weights.mean)
    assert not loops_in(mean(plain), weights.mean)


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
def test_scanned_layers_of_flax_equal_the_python_loop():
    linen = pytest.importorskip("flax.linen")

    class Block(linen.Module):
        @linen.compact
        def __call__(self, h, _):
            return linen.relu(linen.Dense(WIDTH)(h)), None

    options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": STEPS}
    network = linen.scan(Block, **options)()
    parameters = by_numpy(network.init)(jax.random.key(0), X, None)["params"]
    random = jax.tree.map(lambda a: Moments(a, variance=np.full(a.shape, 0.01)), parameters)

    def plain(layers):
        hidden = X
        for i in range(STEPS):
            dense = layers["Dense_0"]
            hidden = jax.nn.relu(hidden @ dense["kernel"][i] + dense["bias"][i])
        return hidden

    found = propagate_traced(lambda p: network.apply({"params": p}, X, None)[0], random)
    same(found, propagate_traced(plain, random))


def test_reversed_loop_begins_with_the_last_element():
    weights = uncertain(STEPS, WIDTH, WIDTH)
    step = lambda h, w: (relu_layer(h, w), None)  # noqa: E731
    last_first = lambda w: lax.scan(step, jnp.asarray(X), w, reverse=True)[0]  # noqa: E731
    mean, variance = np.asarray(weights.mean), np.asarray(weights.variance)
    flipped = Moments(mean[::-1], variance=variance[::-1])
    backwards = propagate_traced(last_first, weights)
    same(backwards, propagate_traced(lambda w: lax.scan(step, jnp.asarray(X), w)[0], flipped))


def test_results_are_stacked_in_the_order_of_the_elements():
    noise = uncertain(STEPS)
    run = lambda e: lax.scan(lambda x, e: (x + e, x), jnp.zeros(()), e, reverse=True)[1]  # noqa: E731
    before = lambda e: jnp.stack([jnp.sum(e[i + 1 :]) for i in range(STEPS)])  # noqa: E731
    same(propagate(run, noise), propagate(before, noise))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_walk_with_a_random_scale_equals_the_python_loop(covariance):
    inputs = Moments(jnp.asarray(0.2), variance=jnp.asarray(0.05)), uncertain(4)
    same(
        propagate_traced(walk, *inputs, covariance=covariance),
        propagate_traced(plain_walk, *inputs, covariance=covariance),
    )


def test_empty_loop_and_certain_results():
    noise = uncertain(STEPS)
    nothing = lambda e: lax.scan(lambda x, _: (x + e[0], x), e[1], length=0)  # noqa: E731
    last, rows = propagate(nothing, noise)
    assert last.variance == noise.variance[1]
    assert rows.mean.shape == (0,)
    counted = lambda e: lax.scan(lambda c, x: ((c[0] + 1, c[1] * x), c[0]), (0, 1.0), e)  # noqa: E731
    (count, _), counts = propagate(counted, noise)
    assert (int(count.mean), counts.mean.tolist()) == (STEPS, list(range(STEPS)))


def test_derivatives_of_a_loop_equal_those_of_the_python_loop():
    looped, plain = layers(lambda: jnp.asarray(X), residual_layer)
    weights = uncertain(3, WIDTH, WIDTH)

    def objective(fn):
        def of(mean, variance):
            moments = propagate(fn, Moments(mean, variance=variance))
            return jnp.sum(moments.mean**2 + moments.variance)

        return by_numpy(jax.grad(of, argnums=(0, 1)))

    found, expected = (objective(fn)(weights.mean, weights.variance) for fn in (looped, plain))
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-10, rtol=1e-8)


def test_no_tracer_leaves_a_loop():
    looped, _ = layers(lambda: jnp.asarray(X), relu_layer)
    weights = uncertain(STEPS, WIDTH, WIDTH)
    gc.collect()
    gc.freeze()  # every trace is followed by a search among what lives: nothing of earlier tests
    with jax.checking_leaks():
        found = by_numpy(
            lambda mean: propagate(looped, Moments(mean, variance=weights.variance)).variance
        )(weights.mean)
    assert bool(jnp.all(found > 0))


CHOICES, REWARDS = np.array([0, 1, 0, 0]), np.array([1.0, 0.0, 0.0, 1.0])


def learned(rate):
    """Two values of a learner that moves the chosen one towards its reward."""

    def step(values, choice_and_reward):
        choice, reward = choice_and_reward
        return values.at[choice].add(rate * (reward - values[choice])), None

    return lax.scan(step, jnp.full(2, 0.5), (CHOICES, REWARDS))[0]


@pytest.mark.filterwarnings("error::moment_calculus.errors.DependenceWarning")
def test_updated_elements_stay_functions_of_one_gaussian():
    found = propagate(
        lambda x: learned(jax.nn.sigmoid(x))[0], Moments(jnp.array(0.3), variance=jnp.array(0.8))
    )
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    values = jax.vmap(learned)(jax.nn.sigmoid(0.3 + 0.8**0.5 * z))[:, 0]
    mean = np.average(values, weights=weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance, np.average((values - mean) ** 2, weights=weights))
