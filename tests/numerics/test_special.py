from __future__ import annotations

import array_api_compat
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.special
import torch

from moment_calculus.numerics import special

CONVERTERS = {"numpy": np.asarray, "torch": torch.as_tensor, "jax": jnp.asarray}
GRID = np.concatenate([-np.geomspace(1e-3, 8, 25), [0.0], np.geomspace(1e-3, 30, 25)])


def to_numpy(array):
    return np.asarray(array).astype(np.float64)


@pytest.mark.parametrize("convert", CONVERTERS.values(), ids=CONVERTERS)
@pytest.mark.parametrize("name", ["erf", "erfc", "erfcx", "expit"])
def test_agrees_with_scipy_in_float32(name, convert):
    x = GRID[GRID < 8].astype(np.float32)
    ours = getattr(special, name)(convert(x))
    theirs = getattr(scipy.special, name)(x.astype(np.float64))
    assert np.asarray(ours).dtype == np.float32
    assert array_api_compat.array_namespace(ours) is special.namespace(convert(x))
    np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-5)


def test_jax_erfcx_in_float64():
    with jax.enable_x64(True):
        ours = to_numpy(special.erfcx(jnp.asarray(GRID)))
    np.testing.assert_allclose(ours, scipy.special.erfcx(GRID), rtol=1e-13)


def test_ndtr_is_relatively_accurate_in_the_lower_tail():
    x = np.linspace(-12, 8, 41)
    exact = [float(mp.ncdf(value)) for value in x]
    np.testing.assert_allclose(special.ndtr(torch.as_tensor(x)), exact, rtol=1e-13)


def test_logsumexp_and_log_softmax():
    x = np.array([[-1000.0, 0.0, 3.0], [1000.0, 1000.0, -5.0]])
    np.testing.assert_allclose(special.logsumexp(x, axis=-1), scipy.special.logsumexp(x, axis=-1))
    np.testing.assert_allclose(special.log_softmax(x), scipy.special.log_softmax(x, axis=-1))


def test_safe_scale_has_a_zero_gradient_at_zero():
    variance = torch.tensor([0.0, 4.0], requires_grad=True)
    special.safe_scale(variance).sum().backward()
    assert variance.grad.tolist() == [0.0, 0.25]


def _product(x, y):
    return x * y, x - y


def _product_partials(x, y):
    one = special.namespace(x).ones_like(x * y)
    return (y + 0 * x, x + 0 * y), (one, -one)


product = special.elementwise(_product, _product_partials)


def _product_together(x, y):
    return *_product(x, y), *(slope for row in _product_partials(x, y) for slope in row)


together = special.elementwise(_product, _product_partials, values_and_partials=_product_together)


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

    function = special.elementwise(_product, refuse, values_and_partials=_product_together, piece=8)
    x = torch.randn(50, dtype=torch.double, requires_grad=True)
    first, second = function(x, x.detach() + 1)
    (first + second).sum().backward()
    torch.testing.assert_close(x.grad, x.detach() + 2)


def test_elementwise_broadcasts_and_sums_gradients_in_torch():
    x, y = torch.randn(3, 1, dtype=torch.double), torch.randn(4, dtype=torch.double)
    arguments = x.requires_grad_(), y.requires_grad_()
    assert torch.autograd.gradcheck(product, arguments)
    assert torch.autograd.gradgradcheck(product, arguments)


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
    wrong = special.elementwise(lambda x: x**3, lambda x: ((2 * x**2,),))
    x = torch.tensor([1.5], dtype=torch.double, requires_grad=True)
    assert not torch.autograd.gradcheck(wrong, (x,), raise_exception=False)
