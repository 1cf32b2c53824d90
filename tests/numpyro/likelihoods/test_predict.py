"""Closed-form predictions against samples of the same posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_moments import DVIGuide, UnsupportedMoments, predict
from numpyro_moments.sites.traces import bind
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import perturbed

X, Y = (jnp.asarray(array) for array in models.data())


def close(actual, expected, **tolerance):
    np.testing.assert_allclose(actual, expected, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def weights():
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


def prepared(model, *args):
    """A guide with parameters nowhere special."""
    guide = DVIGuide(model)
    return guide, perturbed(guide, *args, spread=0.1)


def test_sites_of_local_latents_and_of_new_plates():
    """All rows are predicted, in their order, whatever size of a subsample the model asks for."""

    def model(x, y=None, size=None):
        w = weights()
        with numpyro.plate("data", len(x), subsample_size=size) as index:
            numpyro.sample(
                "obs", dist.Normal(x[index] @ w, 0.5), obs=None if y is None else y[index]
            )

    guide = DVIGuide(model)
    params = perturbed(guide, X, Y, 5)
    whole, part = (predict(model, guide, params, X, size=size)["obs"].mean for size in (None, 5))
    assert whole.shape == (len(X),)
    close(part, whole)


def test_constants_of_numpy_as_cut_points_under_jit():
    def ordinal(x, y=None):
        fn = dist.OrderedLogistic(x @ weights(), np.array([-0.5, 0.6]))
        models.observe(x, fn, y)

    guide, params = prepared(ordinal, X, jnp.zeros(len(X), int))

    def probabilities(params, x):
        return predict(ordinal, guide, params, x)["obs"].probs

    found = by_numpy(probabilities)(params, X)
    close(found.sum(-1), np.ones(len(X)))
    close(found, probabilities(params, X))


def test_a_confined_parameter_that_was_matched_by_a_gaussian_is_refused():
    """Its quadrature would go through negative rates, where 1/rate is any number."""

    def model(y=None):
        a, b = (numpyro.sample(site, dist.LogNormal(0.0, 1.0)) for site in "ab")
        with numpyro.plate("data", 3):
            numpyro.sample("obs", dist.Gamma(2.0, jnp.broadcast_to(1.5 * a - b, (3,))), obs=y)

    guide = DVIGuide(init_scale=0.5)
    bind(guide, model)
    params = perturbed(guide, jnp.ones(3))
    with pytest.raises(UnsupportedMoments, match="is a Gaussian value"):
        jax.eval_shape(lambda: predict(model, guide, params)["obs"].mean)
