"""What the rules of every book must be: those of the source, steady, positive, equal in hosts."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from moment_calculus.functions.base import Delegating
from moment_calculus.rulebooks import RULEBOOKS
from tests.checks.general import (
    check_float32,
    check_gradients,
    leaves_of,
    meetings,
    needs,
    to_torch,
)
from tests.rulebooks.cases import MEAN, ROOT, RULES

VARIANCES = (0.01, 1.0, 100.0)


@needs(lambda case: case.formula is not None)
def check_formula(case):
    """Mean and variance are those of the source."""
    found = case.outputs(*to_torch((MEAN, ROOT)))
    variance = (ROOT @ ROOT.swapaxes(-1, -2)).diagonal(axis1=-2, axis2=-1)
    mean, spread = case.formula(MEAN, variance)
    for mode in ("full", "diagonal"):
        assert_allclose(found[f"mean-{mode}"], mean, rtol=1e-12, atol=1e-14)
        assert_allclose(found[f"variance-{mode}"], spread, rtol=1e-9, atol=1e-12)


def grid():
    """Pairs of means from −3 to 3 standard deviations with correlations, at three variances."""
    ratios, rhos = np.linspace(-3.0, 3.0, 13), (-0.95, 0.0, 0.95)
    for variance in VARIANCES:
        scale = variance**0.5
        means = scale * np.stack(np.meshgrid(ratios, ratios, indexing="ij"), -1).reshape(-1, 2)
        for rho in rhos:
            root = scale * np.array([[1.0, 0.0], [rho, (1 - rho**2) ** 0.5]])
            yield means, np.tile(root, (len(means), 1, 1))


def check_positive(case):
    """No variance is negative; joint covariances with the argument are positive semi-definite."""
    for mean, root in grid():
        found = case.outputs(*to_torch((mean, root)))
        for mode in ("full", "diagonal"):
            assert (found[f"variance-{mode}"] >= 0).all()
        given = torch.as_tensor(root @ root.swapaxes(-1, -2))
        upper = torch.cat([found["covariance"], found["cross"]], -1)
        joint = torch.cat([upper, torch.cat([found["cross"].mT, given], -1)], -2)
        values = torch.linalg.eigvalsh(joint)
        assert (values >= -1e-9 * values.abs().amax(-1, keepdim=True)).all()


def check_certain(case):
    """Without randomness the moments are those of the plain function, with finite gradients."""
    found = case.outputs(*to_torch((MEAN, 0.0 * ROOT)))
    for mode in ("full", "diagonal"):
        assert_allclose(found[f"mean-{mode}"], case.activation(MEAN), rtol=1e-12, atol=1e-30)
        assert not found[f"variance-{mode}"].any()
    assert not found["covariance"].any()
    leaves = leaves_of((MEAN, 0.0 * ROOT))
    total = sum(output.sum() for output in case.outputs(*leaves).values())
    for gradient in torch.autograd.grad(total, leaves, allow_unused=True):
        assert gradient is None or torch.isfinite(gradient).all()


def check_hosts(case):
    """Torch and JAX agree to 1e-10."""
    expected = case.outputs(*to_torch((MEAN, ROOT)))
    with jax.enable_x64(True):
        found = case.outputs(jax.numpy.asarray(MEAN), jax.numpy.asarray(ROOT))
    for name, output in expected.items():
        assert_allclose(found[name], output, rtol=1e-10, atol=1e-12, err_msg=name)


CHECKS = [check_formula, check_positive, check_certain, check_gradients, check_float32, check_hosts]


@pytest.mark.parametrize(("check", "case"), meetings(CHECKS, RULES))
def test_property(check, case):
    check(case)


def test_every_book_has_rows():
    assert {case.book.name for case in RULES} == RULEBOOKS.keys()


# -------------------------------------------------------------------------------------------------
# A wrong rule in each book fails


class _TooMuchGain(Delegating):
    """The rule of a book with a gain that its variance does not allow."""

    def gain(self, mean, variance):
        return 1.5 * self.function.gain(mean, variance)

    def pair_covariance(self, mean, variance, covariance):
        found = self.function.pair_covariance(mean, variance, covariance)
        return found if found is NotImplemented else 2.25 * found


class _TooWide(Delegating):
    """The rule of a book with a variance that is wrong by 1 %."""

    def moments(self, mean, variance):
        centre, spread = self.function.moments(mean, variance)
        return centre, 1.01 * spread


@pytest.mark.parametrize("case", [c for c in RULES if c.function in ("tanh", "relu")])
def test_a_wrong_rule_fails(case):
    kind, check = (
        (_TooMuchGain, check_positive) if case.formula is None else (_TooWide, check_formula)
    )

    def wrong(function):
        return kind(case.book.rule_for(function))

    check(case)
    with pytest.raises(AssertionError):
        check(replace(case, book=case.book.replacing(**{case.function: wrong})))
