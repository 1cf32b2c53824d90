"""Steps within a ball by conjugate gradients."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from moment_inference.optimisation.natural_newton import Neighbourhood, within_ball


def test_another_gradient_has_products_of_its_own():
    """A step from the same place, as for other draws, is that without the first one's memory."""
    matrix = np.diag([1.0, 2.0, 4.0])
    first = Neighbourhood(SimpleNamespace(), 0.0, np.array([1.0, 2.0, 3.0]), lambda d: matrix @ d)
    other = np.array([-2.0, 0.5, 1.0])
    for gradient in (first.gradient, other):
        step = within_ball(replace(first, gradient=gradient), 1e-9, 9, 1e6)
        np.testing.assert_allclose(step.coordinates, -gradient / np.diag(matrix), rtol=1e-9)
        within_ball(first, 1e-9, 9, 1e6)
