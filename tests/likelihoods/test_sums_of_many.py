"""Sums of more positive random values than are integrated, and sums by linear maps."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pyro_moments
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import smooth_expectation
from moment_calculus.operations.elementwise.factors import joint_parameter, positive_joint
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.rulebooks import propagation_of

DRAWS = 400_000
WEIGHTS = np.array([0.3, 1.0, 0.6, 2.0, 0.0])
FUNCTIONS = {"log": np.log, "inverse": lambda s: 1 / s, "root": np.sqrt}


def positive(name, mean, deviation):
    mean = mean if hasattr(mean, "shape") else np.asarray(mean)
    gaussian = site_value(name, mean, deviation**2 + 0 * mean, propagation_of("full", "exact"))
    return apply(activation("exp"), gaussian)


def sums(kind, deviation):
    """A sum of five positive values, one of which does not count."""
    if kind == "spelled":
        terms = [scale_shift(positive(f"x{i}", 0.1, deviation), w) for i, w in enumerate(WEIGHTS)]
        return reduce(add, terms)
    five = positive("x", [0.1] * 5, deviation)
    if kind == "map":
        return linear(five, WEIGHTS[None])
    return reduce_sum(scale_shift(five, WEIGHTS + 1e-9), (0,))


@pytest.mark.parametrize("kind", ["spelled", "map", "reduced"])
@pytest.mark.parametrize(("deviation", "tolerance"), [(0.3, 2e-4), (1.0, 1e-2)])
def test_a_sum_of_five(kind, deviation, tolerance):
    """The tolerance is that of two logarithms at a time matched by Gaussians."""
    value = sums(kind, deviation)
    assert positive_joint(value) is not None
    found = [float(smooth_expectation(f, value).reshape(())) for f in FUNCTIONS.values()]
    z = np.random.default_rng(0).normal(size=(DRAWS, 5))
    s = np.exp(0.1 + deviation * z) @ WEIGHTS
    for result, function in zip(found, FUNCTIONS.values(), strict=True):
        drawn = function(s)
        error = drawn.std() / DRAWS**0.5
        assert abs(result - drawn.mean()) < 4 * error + tolerance * abs(drawn.mean())


def test_both_precisions_and_gradients_agree():
    """The derivatives are those of differences of the mean."""

    def mean(places):
        spread = torch.full_like(places, 0.25)
        terms = [pyro_moments.Moments(m, variance=v) for m, v in zip(places, spread, strict=True)]
        total = lambda *parts: torch.log(sum(map(torch.exp, parts)))  # noqa: E731
        return pyro_moments.propagate(total, *terms).mean

    places = torch.linspace(-0.4, 0.4, 5, dtype=torch.float64, requires_grad=True)
    exact = mean(places)
    assert mean(places.float()).item() == pytest.approx(exact.item(), rel=1e-6)
    (slopes,) = torch.autograd.grad(exact, places)
    steps = 1e-5 * torch.eye(5, dtype=torch.float64)
    differences = [(mean(places + step) - mean(places - step)).item() / 2e-5 for step in steps]
    assert slopes.tolist() == pytest.approx(differences, rel=1e-6)


def test_traced_factors_are_positive_only_where_the_sum_has_to_be():
    """A location may have negative terms: its sum counts as a Gaussian, as in Pyro."""
    found = []

    def program(x):
        terms = [scale_shift(positive(name, x * 0, 0.3), x) for name in "ab"]
        value = reduce(add, terms)
        found.append(joint_parameter(value) is None)
        found.append(positive_joint(value) is not None)  # as a scale asks
        found.append(joint_parameter(value) is not None)
        return x

    jax.eval_shape(program, jnp.ones(3))
    assert found == [True, True, True]
