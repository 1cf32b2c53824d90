"""Draws of a posterior that is not compiled are those of NumPyro's Normal."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from moment_guides.numpyro.scales import MAX_SHARED_DRAWS, FastNormal, full_like

KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("shape", "sample_shape"), [((), (4,)), ((2, 5), ()), ((MAX_SHARED_DRAWS + 1,), (4,))]
)
@pytest.mark.parametrize("double", [False, True])
def test_draws_are_those_of_numpyro(shape, sample_shape, double):
    with jax.enable_x64(double):
        scale = np.full(shape, 0.3, jnp.result_type(float))
        loc = jnp.linspace(-1.0, 1.0, scale.size).reshape(shape)
        theirs = dist.Normal(loc, scale).sample(KEY, sample_shape)
        ours = FastNormal(loc, scale).sample(KEY, sample_shape)
        assert isinstance(ours, jax.Array)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("of", [lambda f: f, jax.grad, jax.jit, lambda f: jax.jit(jax.grad(f))])
def test_functions_of_draws_are_those_of_numpyro(of):
    def result(kind):
        return of(lambda loc: jnp.sum(kind(loc, 2 * loc).sample(KEY, (3,)) ** 2))(jnp.array(0.7))

    np.testing.assert_allclose(result(FastNormal), result(dist.Normal), rtol=1e-6)


def test_draws_under_vmap_are_those_of_numpyro():
    keys = jax.random.split(KEY, 5)
    draws = [jax.vmap(kind(0.5, 2.0).sample)(keys) for kind in (FastNormal, dist.Normal)]
    np.testing.assert_array_equal(*draws)


def test_initial_scales_have_the_shape_and_type_of_locations():
    for location in (jnp.zeros((2, 3), jnp.float16), np.zeros(4), 0.0):
        found = full_like(location, 0.25)
        assert found.shape == jnp.shape(location)
        assert found.dtype == jnp.result_type(location)
        assert (np.asarray(found) == 0.25).all()
