"""Rules for classes against quadrature and draws, at all scales, in both frameworks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from moment_calculus.errors import ApproximationWarning, UnsupportedMoments
from moment_calculus.functions.families.named import Softplus
from moment_calculus.likelihoods.classes import PREDICTIVE, RULES
from moment_calculus.likelihoods.classes.pairs import nonlinear_variance
from moment_calculus.likelihoods.classes.points import Draws, rotations, standard_points
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.linear.maps import linear
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values.propagation import Propagation
from tests.checks.jaxprs import by_numpy

DRAWS, ROWS = 20_000, 24


@functools.cache
def problem(classes, variance, rank=None, seed=0):
    """Means and roots of logits, and the log-probabilities of draws."""
    generator = np.random.default_rng(seed)
    mean = max(1.0, variance**0.5) * generator.normal(size=(ROWS, classes))
    shape = (ROWS, classes, rank or classes)
    root = generator.normal(size=shape) * np.sqrt(variance / shape[-1])
    noise = generator.normal(size=(DRAWS // 2, ROWS, shape[-1]))
    logits = mean + np.einsum("nij,snj->sni", root, np.concatenate([noise, -noise]))
    return mean, root, logits - logsumexp(logits, axis=-1, keepdims=True)


def value_of(mean, root, **options):
    return as_value(Moments(mean, covariance=root @ root.mT), "f", Propagation(**options))


# Root mean square errors of E log p of any class and of E p, at logit variances; as measured.
ERRORS = {
    "points": {0.1: (0.005, 0.001), 1.0: (0.015, 0.003), 10.0: (0.08, 0.009), 1e3: (0.8, 0.02)},
    "pairs": {0.1: (0.005, 0.001), 1.0: (0.015, 0.004), 10.0: (0.10, 0.015), 1e3: (1.2, 0.03)},
}


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("name", sorted(ERRORS))
def test_the_law_of_the_probabilities_is_that_of_draws(name, variance, classes):
    mean, root, drawn = problem(classes, variance)
    logits, rule = value_of(mean, root), RULES[name]
    noise = 4 * drawn.std(0).max() / DRAWS**0.5
    by_logs, by_shares = ERRORS[name][variance]
    error = rule.log_probs(logits) - drawn.mean(0)
    assert np.sqrt(np.mean(error**2)) < by_logs + noise
    shares, spread = rule.probabilities(logits)
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    assert np.sqrt(np.mean((shares - np.exp(drawn).mean(0)) ** 2)) < by_shares + 2 / DRAWS**0.5
    assert np.sqrt(np.mean((spread - np.exp(drawn).var(0)) ** 2)) < by_shares + 2 / DRAWS**0.5


@pytest.mark.parametrize("power", [1e-6, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("name", ["points", "pairs"])
def test_powers_between_the_expected_logarithm_and_the_probability(name, power):
    mean, root, drawn = problem(3, 2.0)
    logits, rule, label = value_of(mean, root), RULES[name], np.arange(ROWS) % 3
    logs = drawn[:, np.arange(ROWS), label]
    exact = (
        (logsumexp(power * logs, axis=0) - np.log(DRAWS)) / power if power > 1e-3 else logs.mean(0)
    )
    found = rule.tempered(power, label, logits)
    assert (found <= 0).all()
    assert np.abs(found - exact).mean() < (0.02 if name == "points" else 0.04)
    if power == 1e-6:
        np.testing.assert_allclose(found, rule.log_prob(label, logits), atol=1e-5)


@pytest.mark.parametrize("name", ["tilted", "jensen"])
@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 1e3])
def test_bounds_are_below(name, variance):
    mean, root, drawn = problem(4, variance)
    bound = RULES[name].log_probs(value_of(mean, root))
    assert (bound < drawn.mean(0) + 4 * drawn.std(0) / DRAWS**0.5).all()
    if name == "tilted":
        assert (bound > RULES["jensen"].log_probs(value_of(mean, root)) - 1e-9).all()


def test_relabelling_moves_nothing_but_the_labels():
    mean, root, _ = problem(5, 30.0)
    order = np.random.default_rng(1).permutation(5)
    for name, tolerance in (("pairs", 1e-9), ("tilted", 1e-6), ("points", 0.6)):
        plain = RULES[name].log_probs(value_of(mean, root))
        other = RULES[name].log_probs(value_of(mean[:, order], root[:, order]))
        np.testing.assert_allclose(other, plain[:, order], atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in RULES if name != "delta"])
def test_torch_and_jax_agree_with_finite_gradients(name, dtype):
    """Also of certain logits, singular covariances and huge ones."""
    label, (mean, root, _) = np.arange(ROWS) % 4, problem(4, 2.0, rank=2)
    scale = np.repeat([0.0, 1e-4, 1.0, 300.0], ROWS // 4)[:, None, None]
    arrays = [array.astype(dtype) for array in (mean, root * scale)]

    def of_torch(mean, root):
        return RULES[name].log_prob(torch.as_tensor(label), value_of(mean, root)).sum()

    def of_jax(mean, root):
        return RULES[name].log_prob(jnp.asarray(label), value_of(mean, root)).sum()

    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    loss = of_torch(*tensors)
    slopes = torch.autograd.grad(loss, tensors)
    with jax.enable_x64(dtype == "float64"):
        program = by_numpy(jax.value_and_grad(of_jax, (0, 1)))
        theirs, their_slopes = program(*map(jnp.asarray, arrays))
    tolerance = 2e-3 if dtype == "float32" else 1e-6
    np.testing.assert_allclose(loss.item(), theirs, rtol=tolerance)
    for ours, other in zip(slopes, their_slopes, strict=True):
        assert ours.isfinite().all()
        assert np.isfinite(other).all()
        if name != "tilted":  # where its minimum is flat, rounding moves the point that is held
            np.testing.assert_allclose(ours, other, rtol=20 * tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("name", ["points", "pairs"])
def test_gradients_are_those_of_the_value(name):
    mean, root, _ = problem(4, 3.0)
    tensors = [torch.tensor(array, requires_grad=True) for array in (mean[:3], root[:3])]
    label = torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(
        lambda mean, root: RULES[name].log_prob(label, value_of(mean, root)), tensors, atol=1e-4
    )


def test_diagonal_propagation_knows_the_covariance_of_the_last_map():
    """Independent logits of a shared feature are far from the truth."""
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(3, 2))
    for covariance in ("full", "diagonal"):
        flow = Propagation(covariance=covariance)
        source = as_value(Moments(np.ones((5, 2)), variance=np.full((5, 2), 9.0)), "f", flow)
        found = RULES["pairs"].log_probs(linear(source, matrix))
        if covariance == "full":
            expected = found
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("together", [True, False])
def test_many_classes_of_few_features_need_no_matrix_of_classes(together):
    """The map of the features tells their covariance; the same law as by the matrix."""
    generator = np.random.default_rng(0)
    matrix, flow = generator.normal(size=(80, 3)), Propagation(covariance="diagonal")
    source = as_value(Moments(np.zeros((2, 3)), variance=np.ones((2, 3))), "f", flow)
    bias = as_value(Moments(np.zeros(80), variance=np.full(80, 0.5)), "b", flow)
    logits = linear(source, matrix, bias) if together else add(linear(source, matrix), bias)
    logits.spread.covariance = lambda: pytest.fail("a matrix of classes")
    drawn = generator.normal(size=(DRAWS, 3)) @ matrix.T + 0.5**0.5 * generator.normal(
        size=(DRAWS, 80)
    )
    exact = (drawn - logsumexp(drawn, axis=-1, keepdims=True)).mean(0)
    for name, bound in (("points", 0.15), ("pairs", 0.15)):
        error = RULES[name].log_probs(logits) - exact
        assert np.sqrt(np.mean(error**2)) < bound, name


def test_rows_beyond_the_memory_are_computed_in_pieces(monkeypatch):
    from moment_calculus.likelihoods.classes import points

    mean, root, _ = problem(3, 2.0)
    label = np.arange(ROWS) % 3
    whole = RULES["points"].log_prob(label, value_of(mean, root))
    monkeypatch.setattr(points, "MAX_LOGITS", 5 * 3 * 256)
    for like in (np.asarray, torch.tensor, jnp.asarray):
        with jax.enable_x64(True):
            arrays = [like(array) for array in (mean, root)]
            found = RULES["points"].log_prob(like(label), value_of(*arrays))
        np.testing.assert_allclose(found, whole, rtol=1e-9)
    tensors = [torch.tensor(array, requires_grad=True) for array in (mean, root)]
    loss = RULES["points"].log_prob(torch.tensor(label), value_of(*tensors)).sum()
    monkeypatch.setattr(points, "MAX_LOGITS", 1 << 22)
    other = RULES["points"].log_prob(torch.tensor(label), value_of(*tensors)).sum()
    pairs = zip(
        torch.autograd.grad(loss, tensors), torch.autograd.grad(other, tensors), strict=True
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", [name for name in RULES if name != "delta"])
def test_one_class_is_certain(name):
    logits = value_of(np.ones((2, 1)), np.full((2, 1, 1), 3.0))
    found = RULES[name].log_probs(logits)
    np.testing.assert_allclose(found, -4.5 if name == "jensen" else 0.0, atol=1e-4)


def test_counts_are_sums_of_classes():
    mean, root, _ = problem(3, 2.0)
    logits, counts = value_of(mean, root), np.array([2.0, 0.0, 1.0])
    for name in ("points", "pairs", "tilted", "jensen"):
        each = RULES[name].log_probs(logits)
        found = RULES[name].log_prob_of_counts(counts, logits)
        np.testing.assert_allclose(found, 2 * each[:, 0] + each[:, 2] + np.log(3), rtol=1e-9)
    one = RULES["points"].tempered_of_counts(0.5, np.array([0.0, 1.0, 0.0]), logits)
    label = np.full(ROWS, 1)
    np.testing.assert_allclose(one, RULES["points"].tempered(0.5, label, logits), rtol=1e-9)


def test_draws_have_the_moments_of_the_logits():
    """Points of a standard normal distribution in the place of draws."""
    mean, root, drawn = problem(3, 1.0)
    points = standard_points(4096, 3).T
    rule = Draws(4096, lambda shape: np.broadcast_to(points, shape))
    label = np.arange(ROWS) % 3
    exact = drawn[:, np.arange(ROWS), label].mean(0)
    assert np.abs(rule.log_prob(label, value_of(mean, root)) - exact).max() < 0.05


def test_information_is_not_negative_and_that_of_draws():
    mean, root, drawn = problem(3, 3.0)
    logits, shares = value_of(mean, root), np.exp(drawn)
    entropy = -(shares.mean(0) * np.log(shares.mean(0))).sum(-1)
    exact = entropy + (shares * drawn).sum(-1).mean(0)
    for rule, bound in ((PREDICTIVE, 0.005), (RULES["pairs"], 0.07)):
        found = rule.information(logits)
        assert (found >= 0).all()
        np.testing.assert_allclose(found, exact, atol=bound)


def test_quantiles_of_probabilities():
    mean, root, drawn = problem(3, 3.0)
    levels = np.array([0.1, 0.5, 0.9])
    for rule, bound in ((PREDICTIVE, 0.01), (RULES["pairs"], 0.05)):
        found = rule.quantiles(value_of(mean, root), levels)
        below = (np.exp(drawn)[None] < found[:, None]).mean(1)
        assert np.abs(below - levels[:, None, None]).mean() < bound


@pytest.mark.parametrize("name", ["delta", "jensen", "tilted"])
def test_rules_without_a_law_refuse_what_needs_one(name):
    logits = value_of(*problem(3, 1.0)[:2])
    with pytest.raises(
        UnsupportedMoments, match=rf"categorical='{name}'[\s\S]*'points' or 'pairs'"
    ):
        RULES[name].tempered(0.5, np.zeros(ROWS, int), logits)


def test_the_expansion_warns():
    with pytest.warns(ApproximationWarning, match="training"):
        RULES["delta"].log_probs(value_of(*problem(3, 1.0)[:2]))


def test_what_a_softplus_has_beyond_its_gain():
    mean = -np.linspace(0, 5, 41)
    for variance in (1e-2, 1.0, 1e2, 1e4):
        at = np.full_like(mean, variance), max(variance**0.5, 1.0) * mean
        exact = Softplus().moments(*at[::-1])[1] - Softplus().gain(*at[::-1]) ** 2 * variance
        found = nonlinear_variance(*at[::-1])
        assert (found >= 0).all()
        np.testing.assert_allclose(found, exact, atol=6e-3 * variance)


@pytest.mark.parametrize("axes", [2, 10, 64])
def test_rotations_are_orthogonal_and_points_standard(axes):
    bank, points = rotations(axes), standard_points(256, axes)
    np.testing.assert_allclose(
        bank @ bank.mT, np.broadcast_to(np.eye(axes), bank.shape), atol=1e-12
    )
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(points.var(0), 1, rtol=1e-12)
