"""Where guides start: scales, networks by VBP, values of Normals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints

from moment_guides.numpyro.scales import (
    MAX_SHARED_DRAWS,
    FastNormal,
    full_like,
    scale_positive,
    softplus,
)
from numpyro_moments import VBPGuide
from tests.checks.jaxprs import by_numpy
from tests.numpyro.guides.test_guide import start


def test_the_start_of_variance_back_propagation():
    def network(x):
        shapes = {"torch": [40, 50], "flax": [50, 40], "kernel": [5, 5, 3, 30], "bias": [40]}
        site = {
            name: numpyro.sample(name, dist.Normal(1.0, 0.1).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        dimensions = ("NHWC", "HWIO", "NHWC")
        image = jnp.ones((1, 5, 5, 3))
        numpyro.deterministic("dense", x @ site["torch"].T + x @ site["flax"] + site["bias"])
        numpyro.deterministic(
            "convolved",
            jax.lax.conv_general_dilated(
                image, site["kernel"], (1, 1), "VALID", dimension_numbers=dimensions
            ),
        )

    params = by_numpy(lambda: start(VBPGuide(network), jnp.ones((2, 50))))()
    for name, fan_in in {"torch": 50, "flax": 50, "kernel": 75}.items():
        assert params[f"{name}_auto_loc"].std() == pytest.approx(fan_in**-0.5, rel=0.06)
    assert (params["bias_auto_loc"] == 0).all()
    log_variances = 2 * np.log(params["torch_auto_scale"])
    assert log_variances.mean() == pytest.approx(-9, abs=1e-4)
    assert log_variances.std() == pytest.approx(1e-3, rel=0.06)


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


def test_values_are_relatively_accurate_in_single_precision():
    x = np.linspace(-80, 80, 20001, dtype=np.float32)
    exact = np.logaddexp(x.astype(np.float64), 0)
    assert np.abs(np.asarray(softplus(x)) / exact - 1).max() < 3e-7


@pytest.mark.parametrize("double", [False, True])
def test_transform_and_slopes_agree_with_those_of_numpyro(double):
    theirs, ours = biject_to(constraints.softplus_positive), biject_to(scale_positive)
    tolerance = 1e-12 if double else 1e-6
    with jax.enable_x64(double):
        x = jnp.linspace(-6.0, 6.0, 13)
        np.testing.assert_allclose(ours(x), theirs(x), rtol=tolerance)
        for kind in (jax.Array, np.ndarray):
            scales = theirs(x) if kind is jax.Array else np.asarray(theirs(x))
            found = ours.inv(scales)
            assert isinstance(found, kind)
            np.testing.assert_allclose(found, x, atol=100 * tolerance)
        for derivative in (jax.grad, lambda f: jax.grad(jax.grad(f))):
            slopes = (by_numpy(jax.vmap(derivative(transform)))(x) for transform in (ours, theirs))
            np.testing.assert_allclose(*slopes, rtol=100 * tolerance)
