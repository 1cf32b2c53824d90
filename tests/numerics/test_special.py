"""Special functions against SciPy, and the generalised Pareto fit of weights."""

import array_api_compat
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.special
import torch
from scipy import stats

from moment_calculus.numerics import arrays
from moment_calculus.numerics.derivatives import elementwise
from moment_calculus.numerics.pareto import check_ratios, largest_reliable_shape, smooth_weights
from moment_inference.criticism.arviz_access import is_line_0
from tests.criticism.containers.arviz_lines import arviz_weights

CONVERTERS = {"numpy": np.asarray, "torch": torch.as_tensor, "jax": jnp.asarray}
GRID = np.concatenate([-np.geomspace(1e-3, 8, 25), [0.0], np.geomspace(1e-3, 30, 25)])


def to_numpy(array):
    return np.asarray(array).astype(np.float64)


@pytest.mark.parametrize("convert", CONVERTERS.values(), ids=CONVERTERS)
@pytest.mark.parametrize("name", ["erf", "erfc", "erfcx", "expit"])
def test_agrees_with_scipy_in_float32(name, convert):
    x = GRID[GRID < 8].astype(np.float32)
    ours = getattr(arrays, name)(convert(x))
    theirs = getattr(scipy.special, name)(x.astype(np.float64))
    assert np.asarray(ours).dtype == np.float32
    assert array_api_compat.array_namespace(ours) is arrays.namespace(convert(x))
    np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-5)


def test_jax_erfcx_in_float64():
    with jax.enable_x64(True):
        ours = to_numpy(arrays.erfcx(jnp.asarray(GRID)))
    np.testing.assert_allclose(ours, scipy.special.erfcx(GRID), rtol=1e-13)


def test_ndtr_is_relatively_accurate_in_the_lower_tail():
    x = np.linspace(-12, 8, 41)
    exact = [float(mp.ncdf(value)) for value in x]
    np.testing.assert_allclose(arrays.ndtr(torch.as_tensor(x)), exact, rtol=1e-13)


def test_logsumexp_and_log_softmax():
    x = np.array([[-1000.0, 0.0, 3.0], [1000.0, 1000.0, -5.0]])
    np.testing.assert_allclose(arrays.logsumexp(x, axis=-1), scipy.special.logsumexp(x, axis=-1))
    np.testing.assert_allclose(arrays.log_softmax(x), scipy.special.log_softmax(x, axis=-1))


def test_safe_scale_has_a_zero_gradient_at_zero():
    variance = torch.tensor([0.0, 4.0], requires_grad=True)
    arrays.safe_scale(variance).sum().backward()
    assert variance.grad.tolist() == [0.0, 0.25]


def _product(x, y):
    return x * y, x - y


def _product_partials(x, y):
    one = arrays.namespace(x).ones_like(x * y)
    return (y + 0 * x, x + 0 * y), (one, -one)


product = elementwise(_product, _product_partials)


def _product_together(x, y):
    return *_product(x, y), *(slope for row in _product_partials(x, y) for slope in row)


together = elementwise(_product, _product_partials, values_and_partials=_product_together)


@pytest.mark.parametrize("shape", [(4,), (3, 1)])
def test_elementwise_with_all_derivatives_together(shape):
    x, y = torch.randn(shape, dtype=torch.double), torch.randn(4, dtype=torch.double)
    arguments = x.requires_grad_(), y.requires_grad_()
    assert torch.autograd.gradcheck(together, arguments, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(together, arguments)
    per_element = torch.vmap(torch.func.grad(lambda u, v: together(u, v)[0] ** 2))(y, 2 * y)
    torch.testing.assert_close(per_element, 8 * y**3)


def test_the_backward_pass_uses_the_derivatives_of_the_forward_pass():
    def refuse(*arrays):
        raise AssertionError("computed twice")

    function = elementwise(_product, refuse, values_and_partials=_product_together, piece=8)
    x = torch.randn(50, dtype=torch.double, requires_grad=True)
    first, second = function(x, x.detach() + 1)
    (first + second).sum().backward()
    torch.testing.assert_close(x.grad, x.detach() + 2)


def test_elementwise_under_torch_func():
    x, y = torch.randn(5, dtype=torch.double), torch.randn(5, dtype=torch.double)
    per_element = torch.vmap(torch.func.grad(lambda u, v: product(u, v)[0] ** 2))(x, y)
    torch.testing.assert_close(per_element, 2 * x * y * y)
    _, slope = torch.func.jvp(lambda u: product(u, y)[0], (x,), (torch.ones_like(x),))
    torch.testing.assert_close(slope, y)


def test_elementwise_under_jax():
    x, y = jnp.ones((3, 1)), jnp.arange(4.0)
    gradient = jax.jit(jax.grad(lambda u, v: (product(u, v)[0] ** 2).sum(), (0, 1)))(x, y)
    np.testing.assert_allclose(gradient[0], np.full((3, 1), 2 * 14.0))
    np.testing.assert_allclose(gradient[1], 6 * np.arange(4.0))


def test_a_wrong_partial_is_noticed():
    wrong = elementwise(lambda x: x**3, lambda x: ((2 * x**2,),))
    x = torch.tensor([1.5], dtype=torch.double, requires_grad=True)
    assert not torch.autograd.gradcheck(wrong, (x,), raise_exception=False)


@pytest.mark.parametrize("count", [11, 40, 1000, 1600])
@pytest.mark.parametrize("scale", [1e-6, 0.1, 3.0])
def test_they_are_those_of_arviz(count, scale):
    if count in (11, 1000) and not is_line_0():
        pytest.skip("line 1 rounds the number of draws in the tail down, and refuses four")
    ratios = scale * np.random.default_rng(0).standard_t(3, size=(2, 3, count))
    logs, shapes = arviz_weights(ratios)
    found = smooth_weights(ratios)
    np.testing.assert_allclose(np.exp(found.log), np.exp(logs), atol=1e-12)
    known = np.where(np.ptp(ratios, axis=-1) < 1e-3, 0.0, shapes)
    np.testing.assert_allclose(found.shape, known, rtol=1e-9)


def test_blocks_of_rows_are_those_of_all_rows():
    ratios = np.random.default_rng(1).normal(size=(700, 500))  # more than are smoothed at once
    whole, one = smooth_weights(ratios), smooth_weights(ratios[600])
    np.testing.assert_allclose(whole.log[600], one.log)
    assert whole.shape[600] == pytest.approx(float(one.shape))


def test_k_hat_is_judged_together_with_the_share():
    x = np.random.default_rng(2).normal(size=4000)
    narrow = smooth_weights(0.6 * x**2)  # whose shape is 1.2
    even = smooth_weights(0.02 * np.random.default_rng(0).standard_t(1.2, size=4000).clip(-50, 50))
    right = smooth_weights(stats.norm.logpdf(x, scale=0.8) - stats.norm.logpdf(x))
    assert narrow.shape > largest_reliable_shape(4000)
    assert not narrow.is_reliable
    assert even.shape > largest_reliable_shape(4000)
    assert even.share > 0.9
    assert even.is_reliable
    assert right.is_reliable
    few = smooth_weights(-400 * x**2)  # a bounded tail, but hardly a draw that counts
    assert few.share < 0.1
    assert not few.is_reliable


def test_moments_are_those_of_the_target():
    x = np.random.default_rng(3).normal(size=(20_000, 2))
    target = stats.multivariate_normal([0.3, -0.2], [[0.7, 0.2], [0.2, 0.5]])
    weights = smooth_weights(target.logpdf(x) - stats.norm.logpdf(x).sum(-1))
    worth = 20_000 * float(weights.share)
    np.testing.assert_allclose(weights.mean(x), target.mean, atol=4 * (0.7 / worth) ** 0.5)
    np.testing.assert_allclose(weights.covariance(x), target.cov, atol=4 * 0.7 * (2 / worth) ** 0.5)
    deviation = np.sqrt(np.diag(weights.covariance(x)))
    np.testing.assert_allclose(weights.standard_deviation(x), deviation)


def test_draws_come_as_often_as_they_weigh():
    weights = smooth_weights(np.random.default_rng(4).normal(size=300))
    places = weights.resample_indices(np.random.default_rng(5), 1000)
    counts = np.bincount(places, minlength=300)
    assert (np.abs(counts - 1000 * np.exp(weights.log)) < 1).all()
    np.testing.assert_array_equal(places, weights.resample_indices(np.random.default_rng(5), 1000))
    assert (np.diff(places) < 0).any()


def test_draws_of_which_no_weights_can_be_made():
    with pytest.raises(ValueError, match="5 draws have no importance weights"):
        check_ratios(np.zeros(5))
    with pytest.raises(ValueError, match="not finite"):
        check_ratios(np.full(50, np.nan))
