"""Loops and branches of JAX give what the same program in Python gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from numpyro.contrib.control_flow import scan
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_moments import (
    DependenceWarning,
    DeterministicELBO,
    Moments,
    UnsupportedMoments,
    propagate,
)

STEPS, WIDTH = 5, 3
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(4, WIDTH))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def uncertain(*shape, mean=0.0, variance=0.1):
    random = np.random.default_rng(len(shape))
    moments = mean + 0.6 * random.normal(size=shape), variance * random.uniform(0.5, 1, size=shape)
    return Moments(jnp.asarray(moments[0]), variance=jnp.asarray(moments[1]))


def layers(first, step):
    """Layers whose weights are stacked in one array, as a loop of JAX and as one of Python."""

    def looped(weights):
        return lax.scan(lambda h, w: (step(h, w), None), first(), weights)[0]

    def plain(weights):
        hidden = first()
        for i in range(STEPS):
            hidden = step(hidden, weights[i])
        return hidden

    return looped, plain


def relu_layer(h, w):
    return jax.nn.relu(h @ w)


def residual_layer(h, w):
    return h + jax.nn.tanh(h @ w)


def walk(scale, noise):
    return lax.scan(lambda x, e: (x + jnp.exp(scale) * e,) * 2, jnp.zeros(()), noise)[1]


def plain_walk(scale, noise):
    x, rows = jnp.zeros(()), []
    for i in range(noise.shape[0]):
        x = x + jnp.exp(scale) * noise[i]
        rows.append(x)
    return jnp.stack(rows)


def same(found, expected):
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12, rtol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-12, rtol=1e-10)
    if expected.covariance is not None:
        np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-12, rtol=1e-10)


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
    @jax.jit
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
    parameters = network.init(jax.random.key(0), X, None)["params"]
    random = jax.tree.map(lambda a: Moments(a, variance=0.01 * jnp.ones_like(a)), parameters)

    def plain(layers):
        hidden = X
        for i in range(STEPS):
            dense = layers["Dense_0"]
            hidden = jax.nn.relu(hidden @ dense["kernel"][i] + dense["bias"][i])
        return hidden

    found = propagate(lambda p: network.apply({"params": p}, X, None)[0], random)
    same(found, propagate(plain, random))


def test_reversed_loop_begins_with_the_last_element():
    weights = uncertain(STEPS, WIDTH, WIDTH)
    step = lambda h, w: (relu_layer(h, w), None)  # noqa: E731
    backwards = propagate(lambda w: lax.scan(step, jnp.asarray(X), w, reverse=True)[0], weights)
    flipped = Moments(weights.mean[::-1], variance=weights.variance[::-1])
    same(backwards, propagate(lambda w: lax.scan(step, jnp.asarray(X), w)[0], flipped))


def test_results_are_stacked_in_the_order_of_the_elements():
    noise = uncertain(STEPS)
    run = lambda e: lax.scan(lambda x, e: (x + e, x), jnp.zeros(()), e, reverse=True)[1]  # noqa: E731
    before = lambda e: jnp.stack([jnp.sum(e[i + 1 :]) for i in range(STEPS)])  # noqa: E731
    same(propagate(run, noise), propagate(before, noise))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_walk_with_a_random_scale_equals_the_python_loop(covariance):
    inputs = Moments(jnp.asarray(0.2), variance=jnp.asarray(0.05)), uncertain(4)
    same(
        propagate(walk, *inputs, covariance=covariance),
        propagate(plain_walk, *inputs, covariance=covariance),
    )


def test_walk_against_samples():
    scale, noise = Moments(jnp.asarray(0.2), variance=jnp.asarray(0.05)), uncertain(4)
    found = propagate(walk, scale, noise, covariance="full")
    draws = 100_000
    keys = jax.random.split(jax.random.key(0))
    scales = scale.mean + jnp.sqrt(scale.variance) * jax.random.normal(keys[0], (draws,))
    noises = noise.mean + jnp.sqrt(noise.variance) * jax.random.normal(keys[1], (draws, 4))
    paths = np.asarray(jax.vmap(walk)(scales, noises))
    error = paths.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(paths.mean(axis=0) - found.mean) < 5 * error)
    assert np.all(np.abs(paths.var(axis=0) / found.variance - 1) < 5 * np.sqrt(4 / draws))


def test_random_coefficient_keeps_the_dependence_between_steps():
    """x₂ = a (a x₀) with E[a²] ≠ E[a]²."""
    coefficient = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.2))
    run = lambda a: lax.fori_loop(0, 2, lambda _, x: a * x, jnp.ones(()))  # noqa: E731
    found = propagate(run, coefficient)
    np.testing.assert_allclose(found.mean, 0.5**2 + 0.2)
    np.testing.assert_allclose(found.variance, 4 * 0.25 * 0.2 + 2 * 0.2**2)


def test_same_weights_at_every_step_are_refused_as_in_python():
    weights = uncertain(WIDTH, WIDTH)
    with pytest.raises(UnsupportedMoments, match="same latent") as looped:
        propagate(lambda w: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), X, length=3)[0], weights)
    assert looped.value.sites == ("input 0",)
    assert "in scan" in str(looped.value)


def test_long_loop_of_shared_randomness_is_refused():
    factor = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.01))
    with pytest.raises(UnsupportedMoments, match=r"300 steps.*up to 256") as raised:
        propagate(lambda a: lax.fori_loop(0, 300, lambda _, x: a * x + 1, jnp.ones(())), factor)
    assert "own slice" in raised.value.remedy


def test_long_walk_is_a_loop_whose_results_depend_on_each_other():
    noise = uncertain(300)
    total = lambda e: lax.scan(lambda x, e: (x + e, x + e), jnp.zeros(()), e)  # noqa: E731
    last, path = propagate(total, noise)
    np.testing.assert_allclose(path.variance, np.cumsum(noise.variance), rtol=1e-12)
    np.testing.assert_allclose(last.variance, np.sum(noise.variance), rtol=1e-12)
    with pytest.raises(UnsupportedMoments, match="joint moments are not known"):
        propagate(lambda e: total(e)[1] * e, noise)


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.CovarianceDroppedWarning")
def test_two_carried_values_that_depend_on_each_other():
    """Both depend on the same weights: steps are taken one by one, and their sum is exact."""
    noise = uncertain(STEPS)

    def run(e):
        first, second = lax.scan(lambda c, e: ((c[0] + e, c[1] - 2 * e), None), (0.5, 0.5), e)[0]
        return first + second

    found = propagate(run, noise)
    np.testing.assert_allclose(found.variance, jnp.sum(noise.variance))


def test_loop_over_positions_of_one_site():
    """What lax.fori_loop reads by its counter is as good as slices."""
    noise = uncertain(STEPS)
    run = lambda e: lax.fori_loop(0, STEPS, lambda i, x: x + i * e[i], jnp.zeros(()))  # noqa: E731
    np.testing.assert_allclose(
        propagate(run, noise).variance, np.sum(np.arange(STEPS) ** 2 * noise.variance)
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


def test_mapped_function_with_a_random_constant():
    """The results share the constant, and are known to."""
    slope = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.2))
    total = lambda a: jnp.sum(lax.map(lambda x: a * x, jnp.arange(4.0)))  # noqa: E731
    np.testing.assert_allclose(propagate(total, slope, covariance="full").variance, 6**2 * 0.2)


def test_derivatives_of_a_loop_equal_those_of_the_python_loop():
    looped, plain = layers(lambda: jnp.asarray(X), residual_layer)
    weights = uncertain(STEPS, WIDTH, WIDTH)

    def objective(fn):
        def of(mean, variance):
            moments = propagate(fn, Moments(mean, variance=variance))
            return jnp.sum(moments.mean**2 + moments.variance)

        return jax.jit(jax.grad(of, argnums=(0, 1)))

    found, expected = (objective(fn)(weights.mean, weights.variance) for fn in (looped, plain))
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-10, rtol=1e-8)


def test_no_tracer_leaves_a_loop():
    looped, _ = layers(lambda: jnp.asarray(X), relu_layer)
    weights = uncertain(STEPS, WIDTH, WIDTH)
    with jax.checking_leaks():
        found = jax.jit(
            lambda mean: propagate(looped, Moments(mean, variance=weights.variance)).variance
        )(weights.mean)
    assert bool(jnp.all(found > 0))


def state_space(y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))

    def step(x, observation):
        noise = numpyro.sample("noise", dist.Normal(0.0, 1.0))
        x = 0.9 * x + scale * noise
        numpyro.sample("obs", dist.Normal(x, 0.5), obs=observation)
        return x, None

    scan(step, jnp.zeros(()), y)


def test_sites_inside_a_scan_of_numpyro_against_samples():
    y = RANDOM.normal(size=5)
    guide = AutoNormal(state_space)
    optimiser = numpyro.optim.Adam(1e-2)
    exact = SVI(state_space, guide, optimiser, DeterministicELBO())
    state = exact.init(jax.random.key(0), y)
    sampled = SVI(state_space, guide, optimiser, TraceMeanField_ELBO(num_particles=3000))
    sampled.init(jax.random.key(0), y)
    np.testing.assert_allclose(exact.evaluate(state, y), sampled.evaluate(state, y), rtol=0.03)


def test_warnings_point_to_the_line_inside_the_loop():
    coefficient = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.2))
    run = lambda a, e: lax.scan(lambda x, e: (a * x + e, None), jnp.ones(()), e)[0]  # noqa: E731
    with pytest.warns(DependenceWarning) as caught:
        propagate(run, coefficient, uncertain(4))
    assert {warning.filename for warning in caught} == {__file__}
    assert len({warning.lineno for warning in caught}) == 1
