"""The second cumulant against its series, quadrature and draws; its sums by two ways."""

import importlib
from math import factorial

import numpy as np
import pytest

from moment_inference.nested.conditional import Conditioning, Start
from moment_inference.nested.cumulant import corrections
from moment_inference.nested.cumulant.all_pairs import sums_over_all_pairs
from moment_inference.nested.cumulant.derivatives import Derivatives, tail
from moment_inference.nested.cumulant.through_border import order_of, sums_through_border
from moment_inference.nested.factors.bordered import BorderedFactors
from moment_inference.nested.factors.dense import DenseFactors
from moment_inference.nested.factors.ordering import bordered_orderings
from moment_inference.nested.factors.places import Places
from tests.nested.small_models import SmallModel, bernoulli, groups, mixed, poisson

THETA = np.array([[-0.5], [0.0], [0.5]])
KINDS = ["poisson", "bernoulli", "mixed"]


def likelihood(kind, count):
    generator = np.random.default_rng(3)
    counts, outcomes = generator.poisson(1.0, count), generator.integers(0, 2, count)
    half = count // 2
    return dict(
        poisson=poisson(counts),
        bernoulli=bernoulli(outcomes),
        mixed=mixed(poisson(counts[:half]), half, bernoulli(outcomes[half:])),
    )[kind]


def conditioned(model, theta):
    """The Gaussians at points, to rounding."""
    conditioning = Conditioning(model, theta[0])
    found = conditioning.at(theta)
    for _ in range(10):
        found = conditioning.at(theta, Start(found.mean, found.variance))
    return found


class Case:
    """A model with groups, its derivatives, and factors with a border of two."""

    def __init__(self, kind, local=1, count=40, is_uneven=False):
        design, scaled = groups(count, local=local)
        if is_uneven:
            design = np.delete(design, np.s_[1:20], 0)
            design[-5:, 2:] = 0
        self.model = SmallModel(design, scaled, likelihood(kind, len(design)))
        conditioning = Conditioning(self.model, THETA[0])
        self.conditional = conditioning.at(THETA)
        moments = self.conditional.predictor, self.conditional.variance
        self.derivatives = Derivatives.of(self.model.higher(THETA, *moments))
        weights = -self.model.expected(THETA, *moments)[:, 2]
        self.design = self.conditional.design
        self.precision = conditioning.precision.at(THETA) + self.design.gram(weights)
        orderings = bordered_orderings(self.precision.pattern)
        self.factors = next(
            BorderedFactors(self.precision, Places(ordering))
            for ordering in orderings
            if len(ordering.border) == 2
        )


def close(found, expected, tolerance=1e-10):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("local", [1, 2])
@pytest.mark.parametrize("is_uneven", [False, True])
def test_sums_through_a_border_are_those_over_all_pairs(kind, local, is_uneven):
    """In groups of as many rows, and where some have fewer or none, and rows no group."""
    case = Case(kind, local, is_uneven=is_uneven)
    parts = case.factors.border_parts(case.design, 2)
    found = sums_through_border(case.derivatives, parts, 20)
    close(found, sums_over_all_pairs(case.derivatives, case.factors, case.design))


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_coordinates_are_a_border(kind):
    design = np.random.default_rng(0).normal(size=(60, 3)) / 2
    model = SmallModel(design, np.arange(3) > 0, likelihood(kind, 60))
    conditional = conditioned(model, THETA)
    assert isinstance(conditional.factors, DenseFactors)
    moments = conditional.predictor, conditional.variance
    derivatives = Derivatives.of(model.higher(THETA, *moments))
    parts = conditional.factors.border_parts(conditional.design, 3)
    found = sums_through_border(derivatives, parts, 20)
    pairs = sums_over_all_pairs(derivatives, conditional.factors, conditional.design)
    close(found, pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_all_pairs_are_the_series(kind):
    case = Case(kind)
    dense = case.design.dense()
    crossed = case.factors.solve(np.swapaxes(dense, 1, 2))
    covariances = dense @ crossed
    evidence, slopes = 0, 0
    for order in range(3, 40):
        here, further = (case.derivatives.order(n) for n in (order, order + 1))
        sums = np.einsum("gi,gij->gj", here, covariances**order) / factorial(order)
        evidence, slopes = evidence + (here * sums).sum(1) / 2, slopes + further * sums
    third = np.einsum("gdi,gi->gd", crossed**3, case.derivatives.order(3))
    found = sums_over_all_pairs(case.derivatives, case.factors, case.design)
    close(found, (evidence, slopes, third))


def test_exponentials_are_known_among_others_and_beside_rows_without_weight():
    case = Case("mixed")
    half = len(case.model.design) // 2
    is_exponential = case.derivatives.is_exponential
    assert is_exponential.tolist() == [True] * half + [False] * half
    given = case.model.higher(THETA, case.conditional.predictor, case.conditional.variance)
    given[:, :, [0, -1]] = 0
    derivatives = Derivatives.of(given)
    assert derivatives.is_exponential[[0, -1]].all()
    found = sums_over_all_pairs(derivatives, case.factors, case.design)
    assert all(np.isfinite(each).all() for each in found)
    assert (found.slopes[:, [0, -1]] == 0).all()


def test_many_groups_are_summed_through_their_border(monkeypatch):
    case = Case("poisson", count=150)
    parts = case.factors.border_parts(case.design, 2)
    variances = case.conditional.variance
    assert order_of(case.derivatives, parts, variances) < 20
    slow = sums_over_all_pairs(case.derivatives, case.conditional.factors, case.design)
    module = importlib.import_module("moment_inference.nested.cumulant.corrections")
    monkeypatch.delattr(module, "sums_over_all_pairs")
    found = corrections(case.model, case.conditional)
    close([found.evidence, found.third], [slow.evidence, slow.third])
    mean = case.conditional.factors.solve(case.design.transposed_times(slow.slopes))
    close([found.mean], [mean])


def test_the_tail_of_an_exponential():
    x = np.concatenate([np.linspace(-3, 3, 61), [-0.25, 0.25, 1e-3, -1e-8]])
    series = sum(x**n / factorial(n) for n in range(3, 40))
    np.testing.assert_allclose(tail(x.copy()), series, rtol=1e-11)


def remainder(model, conditional, x):
    """Log p(x, y | θ) − log q(x) but for a constant, of draws x at the first point, [count]."""
    densities = model.densities(np.repeat(conditional.theta[:1], len(x), 0), x)
    centred = x - conditional.mean[0]
    covariance = conditional.factors.solve(np.eye(model.size)[None])[0]
    quadratic = np.einsum("nd,de,ne->n", centred, np.linalg.inv(covariance), centred)
    return densities["x"] + densities["y"] + quadratic / 2


def parts(found):
    """The corrections that sums over pairs give."""
    return found.evidence, found.mean, found.third


def test_one_coordinate_by_quadrature():
    """Counts exactly, outcomes up to the orders that are left out."""
    for kind, tolerance in (("poisson", 1e-5), ("bernoulli", 2e-2)):
        design = np.linspace(0.4, 1.2, 5)[:, None]
        model = SmallModel(design, np.array([True]), likelihood(kind, 5))
        conditional = conditioned(model, np.array([[-0.5]]))
        found = parts(corrections(model, conditional))
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        deviation = np.sqrt(conditional.factors.marginal_variances()[0, 0])
        x = conditional.mean[0, 0] + deviation * nodes
        rest = remainder(model, conditional, x[:, None])
        rest = rest - weights @ rest
        expected = (
            weights @ rest**2 / 2,
            weights @ (deviation * nodes * rest**2) / 2,
            weights @ ((deviation * nodes) ** 3 * rest),
        )
        np.testing.assert_allclose(
            np.ravel(np.concatenate([np.ravel(f) for f in found])), expected, rtol=tolerance
        )


def test_three_coordinates_by_draws():
    """Within four standard errors, which are small beside the corrections themselves."""
    design = np.array([[1, 1, 0], [1, 1, 0], [0.5, 0, 1], [1, 0, 1], [1, 0, 1.0]])
    counts = np.array([0, 3, 1, 0, 2])
    model = SmallModel(design, np.array([False, True, True]), poisson(counts))
    conditional = conditioned(model, np.array([[0.0]]))
    found = parts(corrections(model, conditional))
    noise = np.random.default_rng(0).normal(size=(1, 3, 200_000))
    centred = conditional.factors.draws(np.concatenate([noise, -noise], 2))[0].T
    rest = remainder(model, conditional, conditional.mean[0] + centred)
    rest = rest - rest.mean()
    square = (rest**2)[:, None] / 2
    draws = np.concatenate([square, centred * square, centred**3 * rest[:, None]], 1)
    both = draws.reshape(2, -1, draws.shape[1]).mean(0)  # of a draw and its mirror image
    errors = both.std(0) / np.sqrt(len(both))
    expected = np.concatenate([np.ravel(each) for each in found])
    assert (np.abs(both.mean(0) - expected) < 4 * errors).all()
    assert (errors < 0.05 * np.abs(expected).max()).all()
