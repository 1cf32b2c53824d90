"""The rule book logistic: the larger of two values, and which formulas there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import special, stats

import numpyro_moments
import pyro_moments
from moment_calculus.functions.families.relu import ReLU
from moment_calculus.rulebooks.logistic import Logistic
from pyro_moments import Moments, propagate

GENERATOR = np.random.default_rng(1)
MEANS = GENERATOR.normal(size=(2, 5, 4))
SPREADS = GENERATOR.uniform(0.2, 2.0, size=(2, 5, 4))


def larger(first, second, formula):
    """Equations 33, and 40 or 41, of independent values."""
    (m, v), (n, w) = first, second
    theta = (v + w) ** 0.5
    a = (m - n) / theta
    share = stats.logistic.cdf(np.pi * a / 3**0.5)
    mean = n + theta * (a * share + stats.norm.pdf(a))
    if formula == "eq41":
        return mean, v * stats.logistic.cdf(a / 0.3729) + w * stats.logistic.cdf(-a / 0.3729)
    own = ReLU().moments(a, np.ones_like(a))[1]
    return mean, v * own + w * (stats.norm.cdf(-a) + own - stats.norm.cdf(a))


@pytest.mark.parametrize("formula", ["eq41", "eq40"])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "backward"])
@pytest.mark.parametrize("package", [pyro_moments, numpyro_moments])
def test_the_larger_of_two(package, covariance, formula):
    array = torch.tensor if package is pyro_moments else jnp.array
    maximum = torch.maximum if package is pyro_moments else jnp.maximum
    inputs = [
        package.Moments(array(m), variance=array(v)) for m, v in zip(MEANS, SPREADS, strict=True)
    ]
    book = Logistic(maximum=formula)
    found = package.propagate(maximum, *inputs, rules=book, covariance=covariance)
    mean, variance = larger(*zip(MEANS, SPREADS, strict=True), formula)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5)


def test_windows_compare_entry_after_entry():
    x = Moments(torch.tensor(MEANS[:1]), variance=torch.tensor(SPREADS[:1]))
    found = propagate(lambda x: F.max_pool1d(x, 3, 1), x, rules="logistic")
    parts = [(MEANS[:1, :, i : i + 2], SPREADS[:1, :, i : i + 2]) for i in range(3)]
    mean, variance = larger(larger(*parts[:2], "eq41"), parts[2], "eq41")
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)


@pytest.mark.parametrize("formula", ["eq41", "eq40"])
def test_the_larger_of_dependent_values_has_a_covariance(formula):
    """Positive semi-definite with both of them, whatever the equations say of the variance."""
    root = torch.tensor(GENERATOR.normal(size=(50, 6, 6)))
    mean = torch.tensor(GENERATOR.normal(size=(50, 6)))
    inputs = Moments(mean, covariance=root @ root.mT)

    def program(x):
        return torch.cat([torch.maximum(x[..., :3], x[..., 3:]), x], -1)

    found = propagate(program, inputs, rules=Logistic(maximum=formula), covariance="full")
    values = torch.linalg.eigvalsh(found.covariance)
    assert (values > -1e-10 * values.amax(-1, keepdim=True)).all()


def test_a_certain_operand_of_a_maximum():
    x = Moments(torch.tensor(MEANS[0]), variance=torch.tensor(SPREADS[0]))
    found = propagate(lambda x: torch.maximum(x, torch.tensor(MEANS[1])), x, rules="logistic")
    mean, variance = larger((MEANS[0], SPREADS[0]), (MEANS[1], 0 * SPREADS[1]), "eq41")
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)


def shares(kind, mean, variance):
    """Equations 47, 49 and 52 of independent logits."""
    scale = np.pi / 3**0.5
    if kind == "simplified":
        return special.softmax(mean / (variance / scale**2 + 1) ** 0.5, axis=-1)
    differences = mean[..., :, None] - mean[..., None, :]
    spread = variance[..., :, None] + variance[..., None, :]
    off = ~np.eye(mean.shape[-1], dtype=bool)
    if kind == "normal":
        parts = stats.norm.cdf(differences / (spread + scale**2) ** 0.5)
        found = np.prod(np.where(off, parts, 1.0), axis=-1)
    else:
        parts = np.exp(-differences / (spread / scale**2 + 1) ** 0.5)
        found = 1 / (1 + np.sum(np.where(off, parts, 0.0), axis=-1))
    return found / found.sum(-1, keepdims=True)


@pytest.mark.parametrize("kind", ["simplified", "logistic", "normal"])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "backward"])
@pytest.mark.parametrize("package", [pyro_moments, numpyro_moments])
def test_softmax_is_linear_in_the_logits_at_held_variances(package, covariance, kind):
    torch_ = package is pyro_moments
    array = torch.tensor if torch_ else jnp.array
    softmax = (lambda x: x.softmax(-1)) if torch_ else (lambda x: jax.nn.softmax(x, axis=-1))
    x = package.Moments(array(MEANS[0]), variance=array(SPREADS[0]))
    book = Logistic(softmax=kind)
    found = package.propagate(softmax, x, rules=book, covariance=covariance)
    np.testing.assert_allclose(found.mean, shares(kind, MEANS[0], SPREADS[0]), rtol=1e-5)
    step, variance = 1e-5, 0.0
    for place in range(4):
        moved = step * (np.arange(4) == place)
        up, down = (shares(kind, MEANS[0] + s * moved, SPREADS[0]) for s in (1, -1))
        variance = variance + ((up - down) / (2 * step)) ** 2 * SPREADS[0][:, place : place + 1]
    np.testing.assert_allclose(found.variance, variance, rtol=1e-4)
    certain = package.Moments(array(MEANS[0]), variance=array(0 * SPREADS[0]))
    plain = package.propagate(softmax, certain, rules=book, covariance=covariance)
    if kind != "normal":  # which is no softmax without a spread either
        np.testing.assert_allclose(plain.mean, special.softmax(MEANS[0], axis=-1), rtol=1e-5)
    assert not np.asarray(plain.variance).any()


def test_unknown_formulas_are_refused_with_the_candidates():
    with pytest.raises(ValueError, match="mean='ap3' is not one of ap1, ap2a, ap2b, pea"):
        Logistic(mean="ap3")
