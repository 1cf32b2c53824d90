"""Maps with masks have every property; what has no rule is refused with its cause."""

import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations.dropout.masked_weight import SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import multiply_by_noise, noise
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import einsum, matmul
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import cross_covariance
from tests.checks.general import GENERAL, check_oracle, leaves_of, meetings
from tests.dropout.cases import CASES, random_inputs

pytestmark = pytest.mark.filterwarnings("error")
FLOW = propagation_of("full", "exact")
X = np.random.default_rng(2).normal(size=(4, 3))
M = np.random.default_rng(3).normal(size=(2, 3))


def weight(mean=M, axis=-1, **options):
    return masked_weight(mean, SiteMask("w", 0.5, axis, **options), FLOW)


@pytest.mark.parametrize(("check", "case"), meetings([check_oracle, *GENERAL], CASES))
def test_property(check, case):
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e6])
@pytest.mark.parametrize("p", [0.0, 1e-7, 1 - 1e-6])
def test_extremes(case, size, p):
    """In single precision variances are not negative, and no gradient is NaN."""
    mean, factor, matrix, _ = case.example()
    leaves = leaves_of((size * mean, size * factor, matrix, np.array(p)), torch.float32)
    outputs = case.outputs(*leaves)
    assert all(torch.isfinite(part).all() for part in outputs.values())
    assert (outputs["variance"] >= 0).all()
    total = sum(part.sum() for part in outputs.values())
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    assert not any(g.isnan().any() for g in gradients if g is not None)


def test_rows_are_independent_and_a_mask_meets_its_inputs():
    """Masks are new for every row: the sum over rows has the sum of the variances."""
    y = linear(X, weight())
    assert y.batch_independent
    x = random_inputs(X, np.ones((4, 3, 3)), FLOW)
    np.testing.assert_allclose(
        cross_covariance(linear(x, weight()), x), M @ x.covariance, rtol=1e-12
    )


def test_one_noise_is_one_value():
    """(z x)² and z x + z y have the moments of one z, as products of different noises have not."""
    z = noise("z", np.ones((4, 3)), np.full((4, 3), 0.5), FLOW)
    both = add(multiply(z, X), multiply(z, 2 * X)).gaussian()
    np.testing.assert_allclose(both.variance, 0.5 * (3 * X) ** 2)
    apart = add(
        multiply_by_noise(X, 0.5, "a", FLOW), multiply_by_noise(2 * X, 0.5, "b", FLOW)
    ).gaussian()
    np.testing.assert_allclose(apart.variance, 0.5 * 5 * X**2)


def test_a_vector_is_a_weight_of_one_output():
    expected = linear(X, weight(M[:1])).gaussian()
    for found in (
        matmul(X, weight(M[0])),
        matmul(weight(M[0]), X.T),
        einsum("bi,i->b", X, weight(M[0])),
    ):
        np.testing.assert_allclose(found.mean, expected.mean[:, 0])
        np.testing.assert_allclose(found.variance, expected.variance[:, 0])
    single = matmul(weight(M[0]), X[0]).gaussian()
    np.testing.assert_allclose(single.variance, expected.variance[0, 0])


def used_twice():
    w = weight()
    return linear(X, w), linear(X, w)


REFUSED = {
    "contracted a second time": used_twice,
    "along axis -1, but its mask is over axis -2": lambda: linear(X, weight(axis=-2)),
    "have several axes of rows": lambda: linear(np.ones((2, 4, 3)), weight()),
    "of shape (4, 2) with the masked site": lambda: linear(np.ones((4, 2)), weight()),
    "of shape (5, 2, 3) is not supported": lambda: linear(X, weight(np.ones((5, 2, 3)))),
    "meets an operation other than": lambda: matmul(weight(), weight(M.T)),
    "meets an operation other than a": lambda: einsum("bi,oi->boi", X, weight()),
    "meets an operation other than a transpose": lambda: einsum("oi->o", weight()),
    "operation other than a transpose": lambda: linear(X, M, weight(M[:, 0])),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_refusals(cause):
    with pytest.raises(UnsupportedMoments) as raised:
        REFUSED[cause]()
    assert cause in raised.value.cause
    assert "w" in raised.value.sites
    other = {"along axis -1,": "make a new guide", "contracted a s": "propagation='sampled'"}
    assert other.get(cause[:14].rstrip(), "name the site in sample_sites") in raised.value.remedy
