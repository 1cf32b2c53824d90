"""The softplus of the guides' scales is NumPyro's, computed otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints

from moment_guides.numpyro.scales import scale_positive, softplus
from tests.checks.jaxprs import by_numpy


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
