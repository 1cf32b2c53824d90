import mpmath as mp
import numpy as np
import pytest
import torch

from moment_calculus.numerics import normal
from tests.oracles import quadrature as oracle

rng = np.random.default_rng(5)
THRESHOLDS = [(0.0, 0.0), (0.3, -0.7), (-8.0, -8.0), (8.0, 8.0), (8.0, -8.0), (-3.0, -2.99)]
THRESHOLDS += [tuple(rng.uniform(-8, 8, 2)) for _ in range(4)]
CORRELATIONS = [1e-6, 0.3, 0.9, 0.999, 1 - 1e-8, 1.0]


def double(*values):
    return [torch.tensor(value, dtype=torch.double, requires_grad=True) for value in values]


def exact_tail(t):
    with mp.workdps(50):
        t = mp.mpf(t)
        beyond, density = mp.ncdf(-t), mp.npdf(t)
        return beyond, density - t * beyond, (1 + t * t) * beyond - t * density


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 2e-10), (np.float32, 2e-5)])
def test_tail_moments(dtype, tolerance):
    t = np.concatenate([np.linspace(0, 9, 91), [2.4999, 2.5001, 3.9999, 4.0001]]).astype(dtype)
    for moment, exact in zip(
        normal.tail_moments(t), zip(*(exact_tail(float(v)) for v in t), strict=True), strict=True
    ):
        assert moment.dtype == dtype
        np.testing.assert_allclose(moment, [float(v) for v in exact], rtol=tolerance)


def test_tail_moments_far_out_vanish_with_their_gradients():
    t = torch.tensor([50.0, 1e4, 1e20], requires_grad=True)
    moments = normal.tail_moments(t)
    torch.stack(moments).sum().backward()
    assert all(bool((moment == 0).all()) for moment in moments)
    assert t.grad.abs().max() == 0


def test_no_tail_in_float32_makes_denormal_products():
    t = np.linspace(0, 15, 301, dtype=np.float32)
    parts = np.stack(normal.tails_and_density(t))
    assert np.all((parts == 0) | (parts > 1e-25))
    assert np.all(parts[:, t > normal.SINGLE_LIMIT] == 0)
    assert np.all(parts[:, t <= normal.SINGLE_LIMIT] > 0)


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("rho", [*CORRELATIONS, *(-rho for rho in CORRELATIONS)])
@pytest.mark.parametrize("name", ["step_covariance", "rectifier_covariance"])
def test_pairs_against_price(name, rho, thresholds):
    exact = float(getattr(oracle, name)(*thresholds, rho))
    if abs(exact) < 1e-290:
        pytest.skip("below the range of float64")
    ours = getattr(normal, name)(*(np.asarray(value) for value in (*thresholds, rho)))
    assert oracle.relative(float(ours), exact) < 2e-8


@pytest.mark.parametrize("name", ["step_covariance", "rectifier_covariance"])
def test_gradients(name):
    arguments = double(
        [-2.0, 0.3, 4.0, -1.0, 1.2], [-1.9, 0.1, -3.0, 2.0, 1.2], [0.95, -0.99, 0.2, 0.0, 0.5]
    )
    assert torch.autograd.gradcheck(getattr(normal, name), arguments)
    assert torch.autograd.gradgradcheck(getattr(normal, name), arguments, atol=1e-4)


@pytest.mark.parametrize("name", ["step_covariance", "rectifier_covariance"])
def test_finite_for_extreme_arguments_in_float32(name):
    far = torch.tensor([-1e22, -1e4, -41.0, 0.0, 1e-20, 41.0, 1e4, 1e22])
    near_one = torch.tensor([-1.0, -1 + 6e-8, -1e-20, 0.0, 1e-20, 1 - 6e-8, 1.0])
    a, b, rho = (
        part.clone().requires_grad_() for part in torch.meshgrid(far, far, near_one, indexing="ij")
    )
    value = getattr(normal, name)(a, b, rho)
    gradients = torch.autograd.grad(value.sum(), (a, b, rho))
    assert all(bool(torch.isfinite(part).all()) for part in (value, *gradients))


def test_steps_of_equal_and_opposite_variables():
    a, b = np.random.default_rng(7).uniform(-6, 6, (2, 200))
    one, product = np.ones(200), normal.cdf(a) * normal.cdf(b)
    equal = normal.cdf(np.minimum(a, b)) - product
    np.testing.assert_allclose(normal.step_covariance(a, b, one), equal, rtol=1e-8, atol=1e-15)
    opposite = np.clip(normal.cdf(a) - normal.cdf(-b), 0, None) - product
    np.testing.assert_allclose(normal.step_covariance(a, b, -one), opposite, atol=1e-8)


def test_conditional_cdf_and_density():
    a, b, rho = np.random.default_rng(8).uniform(-1, 1, (3, 200)) * [[4], [4], [0.99]]
    root = np.sqrt(1 - rho**2)
    ours = normal.conditional_cdf(a, b, rho)
    np.testing.assert_allclose(ours, normal.cdf((a - rho * b) / root), rtol=1e-9)
    density = normal.pdf(b) * normal.pdf((a - rho * b) / root) / root
    np.testing.assert_allclose(normal.bivariate_pdf(a, b, rho), density, rtol=1e-9)
