"""Newton's method in natural parameters, on a Poisson regression whose ELBO has a closed form.

The oracle is SciPy's minimisation of the same loss, by the parameters as they are.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from moment_guides.families.gaussian_parameters import GaussianParameters, Part, PartIndices
from moment_inference.optimisation.local_coordinates import LocalMap
from moment_inference.optimisation.natural_newton import Neighbourhood, natural_newton
from moment_inference.optimisation.outcome import Outcome
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.response.banded_inverse import BandedInverse
from moment_inference.response.natural_inverse import NaturalInverse

ROWS, WIDTH = 30, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, WIDTH)) / 2
Y = RANDOM.poisson(np.exp(X @ np.array([0.5, -0.5, 0.2, 1.0]) + 0.4))


# coordinates that are shared, blocks of the others, and whether these are a chain
LAYOUTS = {
    "one block": (4, 0, False),
    "two": (0, 2, False),
    "single": (0, 4, False),
    "arrow": (1, 3, False),
    "pair": (2, 1, False),
    "chain": (0, 4, True),
    "chain of pairs": (0, 2, True),
    "shared chain": (1, 3, True),
}


def layout(name):
    """A Gaussian over the weights, and an intercept that is none."""
    shared, blocks, is_chain = LAYOUTS[name]
    places, start, parts = np.arange(WIDTH), 2 * WIDTH, []
    sizes = [(0, 1, shared)] + ([(shared, blocks, (WIDTH - shared) // blocks)] if blocks else [])
    for of_shared, count, width in sizes:
        locs, places = places[: count * width].reshape(count, width), places[count * width :]
        each = width * of_shared + width * (width - 1) // 2
        factors = start + np.arange(count * each).reshape(count, each)
        steps = ((count - 1) * is_chain, width, width)
        links = start + factors.size + np.arange(np.prod(steps)).reshape(steps)
        parts.append(PartIndices(of_shared, locs, WIDTH + locs, factors, links))
        start += factors.size + links.size
    return GaussianParameters(tuple(parts), np.array([start]))


def joint(parts):
    """The mean and the factor of all weights."""
    mean, root, start = np.concatenate([part.mean.ravel() for part in parts]), [], 0
    for part in parts:
        before = np.zeros([part.mean.shape[1], WIDTH])
        for block, link in zip(part.root, transitions(part), strict=True):
            rows, own = link @ before, block.shape[1] - len(block)
            rows[:, start : start + len(block)] = block[:, own:]
            before = rows.copy()
            rows[:, :own] = block[:, :own]
            root, start = [*root, rows], start + len(block)
    assert start == WIDTH
    return mean, np.concatenate(root)


def transitions(part):
    """Those from the block before to each block, of the first zero."""
    blocks, width = part.mean.shape
    none = np.zeros([blocks - len(part.links), width, width])
    return np.concatenate([none, part.links])


def split(parts, mean, root):
    """The same of the parts, from derivatives by the mean and the factor of all weights."""
    whole, result, end = joint(parts)[1], [], WIDTH
    for part in reversed(parts):
        blocks, width = part.mean.shape
        side, later, rows, links = part.root.shape[2] - width, 0.0, [], []
        for link in reversed(transitions(part)):
            own, before = slice(end - width, end), slice(end - 2 * width, end - width)
            by_own = root[own, side:] + later
            lower = np.tril(by_own[:, own.start - side : end - side])
            rows.append(np.concatenate([root[own, :side], lower], 1))
            links.append(by_own @ whole[before, side:].T if end > side + width else link)
            later, end = link.T @ by_own, end - width
        means = mean[end : end + blocks * width].reshape(blocks, width)
        by_links = np.array(links[::-1]).reshape(blocks, width, width)
        by_root = np.array(rows[::-1]).reshape(part.root.shape)
        result.append(Part(means, by_root, by_links[blocks - len(part.links) :]))
    return tuple(result[::-1])


def value_and_slope(parameters, vector):
    """The negative ELBO with a prior N(0, I), and its slope by the vector."""
    point = parameters.point(vector)
    (mean, root), (intercept,) = joint(point.parts), point.rest
    through = X @ root
    rate = np.exp(X @ mean + intercept + (through**2).sum(1) / 2)
    loss = rate.sum() - Y @ (X @ mean + intercept) - np.log(np.diagonal(root)).sum()
    loss += (mean @ mean + (root**2).sum()) / 2
    by_root = X.T @ (rate[:, None] * through) + root - np.diag(1 / np.diagonal(root))
    by_parts = split(point.parts, X.T @ (rate - Y) + mean, by_root)
    by = point._replace(parts=by_parts, rest=np.array([(rate - Y).sum()]))
    return loss, slope_of(parameters, point, by)


def slope_of(parameters, point, by):
    """A function's slope by the vector from those by means, roots and rest."""
    slope = np.empty(parameters.size)
    slope[parameters.rest] = by.rest
    for indices, part, change in zip(parameters.parts, point.parts, by.parts, strict=True):
        width = part.mean.shape[1]
        scale = np.diagonal(part.root[:, :, indices.shared :], axis1=1, axis2=2)
        rows, columns = np.tril_indices(width, indices.shared - 1, indices.shared + width)
        slope[indices.locs], slope[indices.links] = change.mean, change.links
        slope[indices.scales] = (change.root * part.root).sum(2) / scale * -np.expm1(-scale)
        slope[indices.factors] = (scale[..., None] * change.root)[:, rows, columns]
    return slope


def objective(parameters, is_compiled=True):
    """The loss for the method, with products by differences of slopes."""
    both = lambda vector: value_and_slope(parameters, vector)  # noqa: E731

    def product(vector, direction):
        ahead, behind = (both(vector + sign * 1e-5 * direction)[1] for sign in (1, -1))
        return (ahead - behind) / 2e-5

    def hessian(vector):
        return np.stack([product(vector, row) for row in np.eye(parameters.size)])

    units = lambda vector: np.full_like(vector, 0.2)  # noqa: E731
    return DeterministicLoss(
        both, hessian, product, units, 2e-16, gaussian=parameters, is_compiled=is_compiled
    )


def start(parameters):
    vector = np.zeros(parameters.size)
    for part in parameters.parts:
        vector[part.scales] = np.log(np.expm1(0.3))
    return vector


def fitted(parameters, is_compiled=True):
    loss = objective(parameters, is_compiled)
    first = loss.value_and_slope(start(parameters))[0]
    outcome = Outcome([first], point=start(parameters))
    return natural_newton(loss, parameters, outcome, 50, 1e-9, None), loss


def random_vector(parameters):
    return np.random.default_rng(1).normal(size=parameters.size) / 2


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_vector_of_parameters_comes_back(name):
    parameters = layout(name)
    vector = random_vector(parameters)
    np.testing.assert_allclose(parameters.vector(parameters.point(vector)), vector, atol=1e-14)


@pytest.mark.parametrize("name", LAYOUTS)
def test_derivatives_by_coordinates_are_those_of_differences(name):
    parameters = layout(name)
    vector = random_vector(parameters)
    local = LocalMap(parameters, parameters.point(vector), np.array([0.5]))
    step = 0.05 * np.random.default_rng(2).normal(size=local.size)
    there = lambda at: parameters.vector(local.point(at))  # noqa: E731
    slope = value_and_slope(parameters, there(step))[1]
    differences = [
        (value_and_slope(parameters, there(step + e))[0])
        - value_and_slope(parameters, there(step - e))[0]
        for e in 1e-5 * np.eye(local.size)
    ]
    np.testing.assert_allclose(
        local.gradient(step, slope), np.array(differences) / 2e-5, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_direction_is_the_transpose_of_a_gradient(name):
    parameters = layout(name)
    local = LocalMap(parameters, parameters.point(random_vector(parameters)), np.array([0.5]))
    random = np.random.default_rng(3)
    step, row = random.normal(size=local.size), random.normal(size=parameters.size)
    gradient = local.gradient(np.zeros(local.size), row)
    np.testing.assert_allclose(gradient @ step, row @ local.direction(step), rtol=1e-12)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_ends_where_scipy_does(name, is_compiled):
    parameters = layout(name)
    outcome, loss = fitted(parameters, is_compiled)
    expected = minimize(loss.value_and_slope, start(parameters), jac=True, tol=1e-9)
    assert outcome.converged
    assert outcome.steps <= 12
    np.testing.assert_allclose(outcome.loss, expected.fun, atol=1e-8)
    np.testing.assert_allclose(outcome.point, expected.x, atol=1e-4)


@pytest.mark.parametrize("name", ["one block", "arrow", "shared chain"])
def test_the_curvature_is_that_of_the_coordinates(name):
    parameters = layout(name)
    vector = random_vector(parameters)
    both = [
        Neighbourhood.of(objective(parameters, flag), parameters, vector, np.array([0.5]))
        for flag in (True, False)
    ]
    direction = np.random.default_rng(4).normal(size=both[0].map.size)
    by_differences, by_products = (each.product(direction) for each in both)
    np.testing.assert_allclose(by_differences, by_products, rtol=1e-5, atol=1e-5)
    other = np.random.default_rng(5).normal(size=both[0].map.size)
    np.testing.assert_allclose(
        by_products @ other, both[1].product(other) @ direction, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_natural_step_solves_a_conjugate_model(name):
    parameters = layout(name)
    random = np.random.default_rng(8)
    origin = parameters.point(random_vector(parameters))
    mean, root = joint(origin.parts)
    has_element = np.abs(np.linalg.inv(root @ root.T)) > 1e-9
    random_matrix = random.normal(size=(WIDTH, WIDTH)) / 2
    precision = np.where(has_element, random_matrix + random_matrix.T, 0.0)
    precision, shift = precision + 4 * np.eye(WIDTH), random.normal(size=WIDTH)
    local = LocalMap(parameters, origin, np.ones(1))
    by_root = precision @ root - np.diag(1 / np.diagonal(root))
    by_parts = split(origin.parts, precision @ mean - shift, by_root)
    slope = slope_of(parameters, origin, origin._replace(parts=by_parts, rest=np.zeros(1)))
    moved = local.moved(-local.gradient(np.zeros(local.size), slope))
    mean, root = joint(moved.parts)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(mean, np.linalg.solve(precision, shift), rtol=1e-7)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_step_beyond_all_gaussians_is_none(name):
    parameters = layout(name)
    local = LocalMap(parameters, parameters.point(start(parameters)), np.array([0.5]))
    for at, part in enumerate(parameters.parts):
        parts = local.split(np.zeros(local.size))[0]
        parts[at].b[:, *part.ones] = 2
        is_empty = not part.locs.size
        assert is_empty or local.moved(local.joined(parts, np.zeros(1))) is None


@pytest.mark.parametrize("name", ["one block", "arrow", "shared chain"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_inverse_is_that_of_the_hessian(is_compiled, name):
    parameters = layout(name)
    outcome, loss = fitted(parameters, is_compiled)
    rows = np.random.default_rng(6).normal(size=(3, parameters.size))
    inverse = NaturalInverse(loss, outcome.point)
    hessian = loss.hessian(outcome.point)
    expected = np.linalg.solve((hessian + hessian.T) / 2, rows.T).T
    np.testing.assert_allclose(inverse.solve(rows), expected, rtol=2e-4, atol=1e-5)
    noise = SimpleNamespace(normal=lambda size: np.eye(size[0]))  # so that draws are a root
    root = inverse.draws(noise, parameters.size)
    covariance = np.linalg.inv((hessian + hessian.T) / 2)
    np.testing.assert_allclose(root.T @ root, covariance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("name", [name for name, (_, blocks, _) in LAYOUTS.items() if blocks > 1])
def test_the_inverse_of_blocks_is_that_of_the_hessian(name, is_local, monkeypatch):
    """Where each row of the data meets one block, or two neighbours; else it is not claimed."""
    shared, blocks, is_chain = LAYOUTS[name]
    if is_local:
        block = np.repeat(np.arange(-1, blocks), [shared, *[(WIDTH - shared) // blocks] * blocks])
        distance = block - np.arange(ROWS)[:, None] % blocks
        is_met = (block < 0) | (distance == 0) | ((distance == 1) & is_chain)
        monkeypatch.setattr(sys.modules[__name__], "X", X * is_met)
    parameters = layout(name)
    outcome, loss = fitted(parameters)
    around = Neighbourhood.of(loss, parameters, outcome.point, np.array([0.5]))
    inverse = BandedInverse.of(around, 1e-10)
    if not is_local:
        assert (inverse is None) == (name != "chain of pairs")  # of two blocks, which may be met
        return
    hessian = np.stack([around.product(row) for row in np.eye(around.map.size)])
    expected = np.linalg.inv((hessian + hessian.T) / 2)
    np.testing.assert_allclose(inverse.solve(np.eye(around.map.size)), expected, atol=1e-5)
    noise = SimpleNamespace(normal=lambda size: np.eye(size[0]))  # so that draws are a root
    root = inverse.draws(noise, inverse._moments.size)
    np.testing.assert_allclose(root.T @ root, expected, atol=1e-5)
    means = [around.map.moves_of_means(row) for row in np.eye(around.map.size)]
    means = np.stack([np.concatenate([part.ravel() for part in parts]) for parts in means], 1)
    variances = np.diagonal(means @ expected @ means.T)
    np.testing.assert_allclose(inverse.variances_of_means(), variances, atol=1e-5)
