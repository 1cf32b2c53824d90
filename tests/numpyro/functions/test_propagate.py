"""propagate: moments of any function for uncertain inputs, without a model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_moments import Moments, UnsupportedMoments, propagate
from tests.checks.jaxprs import by_numpy

RANDOM = np.random.default_rng(0)
FIRST, LAST = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 5), (5, 2)))


def layer(x):
    return x @ FIRST


def network(x):
    return jax.nn.relu(layer(x)) @ LAST


def moments(seed=0):
    root = np.random.default_rng(seed).normal(size=(4, 3, 3)).astype(np.float32)
    return Moments(jnp.ones((4, 3)), covariance=jnp.asarray(root @ np.swapaxes(root, -1, -2)))


def test_diagonal_is_the_default_and_compiled_moments_are_the_same():
    result = propagate(layer, moments())
    assert result.covariance is None
    assert result.variance.shape == (4, 5)
    compiled = by_numpy(lambda noisy: propagate(layer, noisy))(moments())
    np.testing.assert_allclose(compiled.mean, result.mean, rtol=1e-5)
    np.testing.assert_allclose(compiled.variance, result.variance, rtol=1e-5)


def test_vmap_over_moments():
    noisy = moments()
    rows = by_numpy(jax.vmap(lambda row: propagate(network, row, covariance="full")))(noisy)
    together = by_numpy(lambda noisy: propagate(network, noisy, covariance="full"))(noisy)
    np.testing.assert_allclose(rows.covariance, together.covariance, rtol=2e-5, atol=1e-5)


def test_certain_arguments_and_structures_pass_through():
    noisy = moments()
    result = propagate(
        lambda x, k, name: {"sum": x["a"] + k, "rest": (k, x["a"][..., 0])}, {"a": noisy}, 2.0, "b"
    )
    np.testing.assert_allclose(result["sum"].mean, noisy.mean + 2)
    assert result["rest"][0].mean == 2.0
    assert result["rest"][0].variance == 0.0
    np.testing.assert_allclose(result["rest"][1].variance, noisy.variance[..., 0])


def test_unsupported_operation_names_input_line_and_remedy():
    with pytest.raises(UnsupportedMoments) as refusal:
        propagate(lambda inputs: jnp.sort(inputs["x"]), {"x": moments()})
    message = str(refusal.value)
    assert "sort" in message
    assert "test_propagate.py" in message
    assert "input 0['x']" in message
    assert "remedy" in message


def test_unknown_options_name_the_candidates():
    with pytest.raises(ValueError, match="rules='mean' is not one of exact, dvi"):
        propagate(network, moments(), rules="mean")
