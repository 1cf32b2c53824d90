"""Layers and rules of primitives in JAX, in both precisions."""

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import activation
from moment_calculus.numerics.normal import rectifier_covariance
from numpyro_moments import Moments, propagate, rules
from tests.cases import LAYERS
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated, propagate_traced
from tests.numpyro.rules.layer_functions import FUNCTIONS

MEAN = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
INPUT = Moments(jnp.asarray(MEAN), variance=jnp.asarray(MEAN**2))
FOLDERS = ["", "shapes", "programs"]


def _dropout(deterministic):
    module = nn.Dropout(0.5, deterministic=deterministic)
    return lambda x: module.apply({}, x, rngs={"dropout": jax.random.key(0)})


@pytest.mark.parametrize("deterministic", [True, False])
def test_dropout_is_its_mask(deterministic):
    """The mask is certain: JAX draws it from a key, and the same key draws the same mask."""
    found = propagate_traced(_dropout(deterministic), INPUT)
    scale = np.asarray(evaluated(_dropout(deterministic), jnp.ones(MEAN.shape)))
    assert_allclose(found.mean, MEAN * scale, rtol=1e-6)
    assert_allclose(found.variance, MEAN**2 * scale**2, rtol=1e-6)


def _multi_head(x):
    module = nn.MultiHeadDotProductAttention(num_heads=1)
    return module.apply(by_numpy(module.init)(jax.random.key(0), jnp.ones(MEAN.shape)), x)


ATTENTION = {
    "jax.nn": lambda x: jax.nn.dot_product_attention(*[x[:, None, :]] * 3),
    "flax": _multi_head,
    "by hand": lambda x: jax.nn.softmax(x @ x.T) @ x,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_self_attention_is_refused(name):
    """Its scores are sums of products of dependent values."""
    with pytest.raises(UnsupportedMoments, match="a product of") as refusal:
        propagate(ATTENTION[name], INPUT)
    assert refusal.value.sites == ("input 0",)
    assert refusal.value.remedy


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_of_rules_is_registered(kind):
    package = getattr(rules, kind) if kind else rules
    folder = Path(package.__file__).parent
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in files if not name.startswith("__")} <= vars(package).keys()


SPELLINGS = {case.name: case.jax or FUNCTIONS[case.name] for case in LAYERS}


@pytest.mark.filterwarnings("error")
def test_layers():
    """By one program: each by itself takes longer."""
    cases = {case.name: case for case in LAYERS}

    def program(inputs):
        return {
            name: propagate(
                SPELLINGS[name], *operands, covariance=cases[name].propagation.covariance
            )
            for name, operands in inputs.items()
        }

    with jax.enable_x64(True):
        inputs = {name: case.inputs(np.asarray) for name, case in cases.items()}
        results = evaluated(program, inputs)
    for name, result in results.items():
        cases[name].check(result)


RATIOS = np.array([-3.0, -1.2, -0.3, 0.0, 0.4, 1.0, 2.5, 5.0])
SCALES = np.array([1e-3, 0.02, 0.3, 0.9, 1.1, 4.0])[:, None]
# Of the mean in units of 1 + σ, of the variance in units of v, and of their derivatives.
OF_MOMENTS, OF_DERIVATIVES = 2e-6, 1e-5


@pytest.mark.parametrize("name", ["elu", "gelu_tanh"])
def test_moments_and_derivatives(name):
    function = activation(name)
    scale = np.broadcast_to(SCALES, (6, 8))
    mean, variance = ((RATIOS * scale).astype("f4"), (scale**2).astype("f4"))
    exact = mean.astype("f8"), variance.astype("f8")

    def total(order, *arrays):
        return function.moments(*arrays)[order].sum()

    def program(*arrays):
        slopes = [jax.grad(total, argnums=(1, 2))(order, *arrays) for order in (0, 1)]
        return function.moments(*arrays), slopes

    (centre, spread), (by_mean, by_variance) = by_numpy(program)(mean, variance)
    true, true_spread = function.moments(*exact)
    assert_allclose((centre - true) / (1 + scale), 0 * scale, atol=OF_MOMENTS)
    assert_allclose((spread - true_spread) / variance, 0 * scale, atol=OF_MOMENTS)
    for argument, step, units in ((0, 1e-4 * scale, (1, scale)), (1, 1e-4 * exact[1], (1, 1))):
        ahead, behind = (
            function.moments(*(a + sign * step * (i == argument) for i, a in enumerate(exact)))
            for sign in (1, -1)
        )
        for order, found in enumerate((by_mean, by_variance)):
            slope = (ahead[order] - behind[order]) / (2 * step)
            off = (found[argument] - slope) / units[order]
            assert_allclose(off, 0 * scale, atol=OF_DERIVATIVES, err_msg=f"{order} by {argument}")


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_a_variance_that_cancels_is_not_negative(covariance):
    mean = jnp.asarray([-3e4, -1e7, 0.0, 2.0], "f4")
    noisy = Moments(mean, variance=jnp.asarray([1e4, 1e6, 1.0, 0.1], "f4"))
    found = propagate_traced(jax.nn.squareplus, noisy, covariance=covariance)
    assert (found.variance >= 0).all()
    assert_allclose(found.variance[2], 0.26944128, rtol=1e-5)


def test_pairs_are_summed_in_a_loop():
    """What is compiled does not grow with the number of nodes."""
    pair = jnp.zeros(3, "f4")
    lowered = jax.jit(jax.grad(lambda *p: rectifier_covariance(*p).sum())).lower(pair, pair, pair)
    assert len(lowered.as_text().splitlines()) < 800


def test_twice_a_value_stays_on_its_line():
    """The maximum of a function of x + x is integrated as one of x, not as of another Gaussian."""
    noisy = Moments(jnp.asarray([0.3, -1.2]), variance=jnp.asarray([0.25, 1.0]))
    sum_of_three = lambda x: jnp.maximum(x + x + jax.nn.sigmoid(x), 1.0)  # noqa: E731
    found = propagate_traced(sum_of_three, noisy)
    expected = propagate_traced(lambda x: jnp.maximum(2 * x + jax.nn.sigmoid(x), 1.0), noisy)
    assert_allclose(found.variance, expected.variance, rtol=1e-5)
    z = np.linspace(-8, 8, 20001)[:, None]
    weights = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    values = np.asarray(evaluated(sum_of_three, noisy.mean + noisy.variance**0.5 * z))
    mean = (weights * values).sum(0)
    assert_allclose(found.mean, mean, rtol=1e-4)
    assert_allclose(found.variance, (weights * (values - mean) ** 2).sum(0), rtol=1e-3)
