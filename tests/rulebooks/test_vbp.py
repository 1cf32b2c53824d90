"""The rule book vbp: what is largest, and classes; its functions are rows of ``cases.py``."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import numpyro_moments
import pyro_moments
from moment_calculus.errors import ApproximationWarning
from moment_calculus.likelihoods.classes import class_rule, predictive_rule
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.rulebooks import propagation_of
from pyro_moments import Moments, propagate

PYRO_MAX = (torch.maximum, lambda x: F.max_pool1d(x, 2), lambda x: x.amax(-1))
JAX_MAX = (
    jnp.maximum,
    lambda x: jnp.max(x.reshape(*x.shape[:-1], -1, 2), -1),
    lambda x: jnp.max(x, -1),
)
GENERATOR = np.random.default_rng(3)
MEANS = GENERATOR.normal(size=(2, 2, 3, 4))
SPREADS = GENERATOR.uniform(0.1, 2.0, size=(2, 2, 3, 4))


@pytest.mark.parametrize("covariance", ["full", "backward", "diagonal"])
@pytest.mark.parametrize("package", [pyro_moments, numpyro_moments])
def test_the_largest_has_the_moments_of_the_largest_mean(package, covariance):
    array, programs = (torch.tensor, PYRO_MAX) if package is pyro_moments else (jnp.array, JAX_MAX)
    inputs = [
        package.Moments(array(m), variance=array(v)) for m, v in zip(MEANS, SPREADS, strict=True)
    ]
    rows = [(MEANS[0].reshape(2, 3, 2, 2), SPREADS[0].reshape(2, 3, 2, 2)), (MEANS[0], SPREADS[0])]
    expected = [(np.moveaxis(MEANS, 0, -1), np.moveaxis(SPREADS, 0, -1)), *rows]
    for program, used, (mean, spread) in zip(programs, (2, 1, 1), expected, strict=True):
        found = package.propagate(program, *inputs[:used], rules="vbp", covariance=covariance)
        place = mean.argmax(-1)[..., None]
        np.testing.assert_allclose(found.mean, mean.max(-1), rtol=1e-6)
        largest = np.take_along_axis(spread, place, -1)[..., 0]
        np.testing.assert_allclose(found.variance, largest, rtol=1e-6)


def test_the_smallest_is_minus_the_largest_of_the_negatives():
    x, y = (
        Moments(torch.tensor(m), variance=torch.tensor(v))
        for m, v in zip(MEANS, SPREADS, strict=True)
    )
    found = propagate(torch.minimum, x, y, rules="vbp")
    torch.testing.assert_close(found.mean, torch.minimum(x.mean, y.mean))


def test_a_book_has_a_rule_for_classes_and_the_option_another():
    mean, spread = torch.tensor([0.3, -1.0, 0.5]).double(), torch.tensor([1.0, 0.4, 0.2]).double()

    def loss(**options):
        logits = site_value("f", mean, spread, propagation_of("diagonal", **options))
        return class_rule(logits).log_probs(logits)

    with pytest.warns(ApproximationWarning, match="rules='vbp' expands"):
        book = loss(rules="vbp")
    shares = mean.softmax(-1)
    curved = 0.5 * (shares * (1 - shares) * spread).sum()
    torch.testing.assert_close(book, mean.log_softmax(-1) - curved)
    assert torch.equal(loss(rules="vbp", categorical="points"), loss(rules="exact"))
    logits = site_value("f", mean, spread, propagation_of("diagonal", "vbp"))
    expected = torch.stack([_to_second_order(mean, spread, place) for place in range(3)])
    found = predictive_rule(logits).probabilities(logits)[0]
    torch.testing.assert_close(found, expected / expected.sum())


def _to_second_order(mean, spread, place):
    hessian = torch.autograd.functional.hessian(lambda x: x.softmax(-1)[place], mean)
    return mean.softmax(-1)[place] + 0.5 * (hessian.diagonal() * spread).sum()
