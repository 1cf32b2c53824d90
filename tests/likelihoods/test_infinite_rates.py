"""The exponential of a product of an exponential and a Gaussian has no mean: rates and scales."""

import warnings

import numpy as np
import pytest

from moment_calculus.errors import ApproximationWarning
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import expected_value
from moment_calculus.likelihoods.location_scale import normal
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of

EXP = activation("exp")


def site(name):
    moments = Moments(np.array([0.1]), variance=np.array([0.2]))
    return as_value(moments, name, propagation_of("full", "exact"))


def test_the_sites_of_an_infinite_rate_are_named():
    """As of counts with group effects that are not centred."""
    product = multiply(apply(EXP, site("s")), site("e"))
    rate = scale_shift(apply(EXP, add(site("m"), product)), 2.0)
    with pytest.warns(ApproximationWarning, match=r"infinite.*site\(s\) e, m, s;.*centred"):
        expected_value(rate)


def test_the_sites_of_a_scale_with_an_infinite_power_are_named():
    """As of volatility whose log is a random walk that is not centred."""
    product = multiply(apply(EXP, site("s")), site("e"))
    with pytest.warns(ApproximationWarning, match=r"infinite.*site\(s\) e, s;.*centred"):
        normal(np.array([0.3]), 0.0, apply(EXP, scale_shift(product, 0.5)))


def test_products_with_bounded_factors_are_finite():
    bounded = multiply(apply(activation("sigmoid"), site("s")), site("e"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for exponent in (bounded, multiply(site("a"), site("b")), add(site("a"), site("b"))):
            expected_value(apply(EXP, exponent))
            normal(np.array([0.3]), 0.0, apply(EXP, exponent))
