"""Predictions of one site: shapes, wrappers, certain distributions and classes."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from numpyro_moments import Prediction
from tests.numpyro.likelihoods.cases import MEAN, VARIANCE, distribution, latent
from tests.numpyro.one_program import evaluated

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_predictions_have_the_shape_of_the_site():
    fn = distribution(lambda f: dist.Normal(f, 0.5), latent())
    y = np.arange(6.0).reshape(2, 3)
    total = dist.Normal(MEAN, np.sqrt(VARIANCE + 0.25))
    prediction = Prediction("y", fn.expand([2, 3]).to_event(1))
    close(prediction.mean, np.tile(MEAN, (2, 1)))
    close(prediction.epistemic_variance, np.tile(VARIANCE, (2, 1)))
    close(prediction.aleatoric_variance, np.full((2, 3), 0.25))
    close(prediction.variance, np.tile(VARIANCE + 0.25, (2, 1)))
    close(prediction.log_prob(y), total.log_prob(y).sum(-1))
    assert repr(prediction) == "Prediction('y', shape=(2, 3))"


def test_predictions_of_certain_distributions_and_of_classes():
    def certain(rate):
        found = Prediction("y", dist.Poisson(rate).expand([2]))
        return found.mean, found.epistemic_variance, found.log_prob(2)

    mean, variance, log_prob = evaluated(certain, 3.0)
    close(mean, [3.0, 3.0])
    close(variance, [0.0, 0.0])
    close(log_prob, np.full(2, scipy.stats.poisson(3.0).logpmf(2)))

    def classes(mean):
        logits = latent("f", mean, event_dim=1)
        fn = distribution(lambda f: dist.CategoricalLogits(f), logits).expand([4])
        found = Prediction("y", fn)
        return found.mean, found.log_prob(np.arange(4) % 3)

    shapes = [part.shape for part in jax.eval_shape(classes, MEAN)]
    assert shapes == [(4, 3), (4,)]
