"""Loops of JAX know, or refuse, what depends on the same randomness at several steps."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import DependenceWarning, Moments, UnsupportedMoments, propagate
from tests.numpyro.loops.helpers import STEPS, WIDTH, X, same, uncertain
from tests.numpyro.one_program import propagate_traced

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


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
        propagate_traced(
            lambda w: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), X, length=3)[0], weights
        )
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
    """Both depend on the same weights: the sum of both steps is exact."""
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


def test_mapped_function_with_a_random_constant():
    """The results share the constant, and are known to."""
    slope = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.2))
    total = lambda a: jnp.sum(lax.map(lambda x: a * x, jnp.arange(4.0)))  # noqa: E731
    np.testing.assert_allclose(propagate(total, slope, covariance="full").variance, 6**2 * 0.2)


def test_warnings_point_to_the_line_inside_the_loop():
    coefficient = Moments(jnp.asarray(0.5), variance=jnp.asarray(0.2))
    run = lambda a, e: lax.scan(lambda x, e: (a * x + e, None), jnp.ones(()), e)[0]  # noqa: E731
    with pytest.warns(DependenceWarning) as caught:
        propagate(run, coefficient, uncertain(4))
    assert {warning.filename for warning in caught} == {__file__}
    assert len({warning.lineno for warning in caught}) == 1


def test_a_loop_carries_the_joint_covariance_that_its_steps_use():
    """h + its mirror image needs what diagonal covariances do not propagate."""
    mix = jnp.asarray(0.4 * np.random.default_rng(1).normal(size=(WIDTH, WIDTH)))

    def looped(weights, noise):
        step = lambda h, e: (h @ mix + e, h + h[:, ::-1])  # noqa: E731
        return lax.scan(step, X @ weights @ mix, noise)[1]

    def plain(weights, noise):
        hidden, rows = X @ weights @ mix, []
        for i in range(STEPS):
            rows.append(hidden + hidden[:, ::-1])
            hidden = hidden @ mix + noise[i]
        return jnp.stack(rows)

    inputs = uncertain(WIDTH, WIDTH), uncertain(STEPS, len(X), WIDTH)
    same(*(propagate_traced(run, *inputs, covariance="diagonal") for run in (looped, plain)))
