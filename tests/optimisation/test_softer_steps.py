"""Newton's steps in natural parameters: softer ones, in smaller balls, from far out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_inference.optimisation.local_coordinates import LocalMap
from moment_inference.optimisation.natural_newton import (
    Neighbourhood,
    natural_newton,
    softened,
    within_ball,
)
from moment_inference.optimisation.outcome import Outcome
from tests.optimisation.test_natural_newton import (
    LAYOUTS,
    WIDTH,
    layout,
    objective,
    random_vector,
    start,
    value_and_slope,
)


def test_a_softer_step_has_a_precision_where_the_natural_one_has_none():
    parameters = layout("one block")
    local = LocalMap(parameters, parameters.point(start(parameters)), np.zeros(1))
    step = 3 * np.random.default_rng(9).normal(size=local.size)
    assert local.moved(step) is None
    part = local.split(step)[0][0]
    natural = np.eye(WIDTH) - np.sqrt(2) * part.b[0]
    precision = (np.eye(WIDTH) + natural @ natural) / 2
    found = local.moved(softened(local, step)).parts[0]
    before = local.origin.parts[0].root[0]
    covariance = before @ np.linalg.inv(precision) @ before.T
    np.testing.assert_allclose(found.root[0] @ found.root[0].T, covariance, rtol=1e-9)
    mean = local.origin.parts[0].mean[0] + before @ np.linalg.solve(precision, part.a[0])
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-9)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_small_softer_step_is_the_natural_one(name):
    parameters = layout(name)
    local = LocalMap(parameters, parameters.point(random_vector(parameters)), np.ones(1))
    step = 1e-4 * np.random.default_rng(10).normal(size=local.size)
    vectors = [parameters.vector(local.moved(each)) for each in (step, softened(local, step))]
    np.testing.assert_allclose(*vectors, atol=1e-6)


def test_a_smaller_ball_takes_no_product_again():
    parameters = layout("one block")
    loss = objective(parameters)
    around = Neighbourhood.of(loss, parameters, start(parameters), np.array([0.2]))
    wide = within_ball(around, 1e-6, 15, 1e9)
    count, product = len(around.images), around.product
    assert count == wide.products
    around.product = lambda direction: pytest.fail("a product was there")
    narrow = within_ball(around, 1e-6, 15, 0.1)
    around.product, around.images = product, []
    again = within_ball(around, 1e-6, 15, 0.1)
    np.testing.assert_array_equal(narrow.coordinates, again.coordinates)


def test_differences_to_one_side_are_near_those_to_both():
    parameters = layout("arrow")
    direction = np.random.default_rng(11).normal(size=len(start(parameters)))
    for is_compiled in (True, False):
        arguments = objective(parameters, is_compiled), parameters, start(parameters)
        one, both = (
            Neighbourhood.of(*arguments, np.array([0.2]), is_for_step=flag)
            for flag in (True, False)
        )
        along = direction[: one.map.size]
        np.testing.assert_allclose(one.product(along), both.product(along), rtol=1e-5, atol=1e-5)


def test_a_start_far_out_begins_at_smaller_scales():
    parameters = layout("one block")
    parameters = GaussianParameters(parameters.parts, np.zeros(0, int))
    without = lambda vector: np.append(vector, 0.0)  # noqa: E731  (the intercept)

    def both(vector):
        loss, slope = value_and_slope(layout("one block"), without(vector))
        return loss, slope[:-1]

    far = start(layout("one block"))[:-1]
    far[parameters.parts[0].scales] = 9.0
    loss = replace(objective(parameters), value_and_slope=both, gaussian=parameters)
    outcome = natural_newton(loss, parameters, Outcome([both(far)[0]], point=far), 50, 1e-9, None)
    assert outcome.converged
    assert outcome.steps <= 25
    near = minimize(both, start(layout("one block"))[:-1], jac=True, tol=1e-9)
    np.testing.assert_allclose(outcome.loss, near.fun, atol=1e-8)
