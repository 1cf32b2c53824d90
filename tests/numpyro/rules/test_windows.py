"""Convolutions, pools, padding and cumulative sums of JAX, against the linear maps they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import Moments, UnsupportedMoments, propagate
from tests.checks.jaxprs import by_numpy
from tests.numpyro.rules.linear_maps import (
    agree,
    bilinear_moments,
    check,
    layer_moments,
    linear_moments,
    normal,
    spread,
)

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


CONVOLUTIONS = {
    "1-D": ((2, 3, 5), (2, 3, 2), {}),
    "1-D, features last": ((2, 5, 3), (2, 3, 2), {"dimension_numbers": ("NHC", "HIO", "NHC")}),
    "2-D, same": ((1, 4, 4, 2), (2, 3, 2, 2), {"padding": "SAME", "dimension_numbers": "last"}),
    "mixed layouts": ((1, 2, 4, 4), (3, 2, 2, 2), {"dimension_numbers": ("NCHW", "OIHW", "HWNC")}),
    "3-D": ((1, 1, 3, 3, 2), (2, 1, 2, 2, 2), {}),
    "strided, dilated": ((1, 2, 7), (2, 2, 2), {"window_strides": (2,), "rhs_dilation": (3,)}),
    "transposed": ((1, 2, 3), (2, 2, 3), {"lhs_dilation": (2,), "padding": [(2, 1)]}),
    "cropped": ((1, 2, 6), (2, 2, 2), {"padding": [(-1, 2)]}),
    "groups of features": ((1, 4, 4), (4, 2, 2), {"feature_group_count": 2}),
    "groups of the batch": ((4, 2, 4), (4, 2, 2), {"batch_group_count": 2}),
}


def convolution(name):
    """The function and the shapes of its operands."""
    inputs, weight, options = CONVOLUTIONS[name]
    options = dict(options)
    if options.get("dimension_numbers") == "last":
        options["dimension_numbers"] = ("NHWC", "HWIO", "NHWC")
    strides = options.pop("window_strides", (1,) * (len(inputs) - 2))
    padding = options.pop("padding", "VALID")
    if "HIO" in options.get("dimension_numbers", ()):
        weight = (2, 3, 2)
    return (
        lambda x, w: lax.conv_general_dilated(x, w, strides, padding, **options),
        inputs,
        weight,
    )


# JAX compiles each of them for long: two of the convolutions and one of the pools before the rest.
FIRST = ["1-D", "groups of features"]


@pytest.mark.parametrize("names", [FIRST, [*CONVOLUTIONS]], ids=["first", "all"])
def test_convolutions_of_random_inputs_with_random_weights_are_exact(names):
    rows = {}
    for name in names:
        function, *shapes = convolution(name)
        arrays = [(normal(*shape), spread(*shape)) for shape in shapes]
        rows[name] = function, bilinear_moments, arrays
    agree(rows)


def test_certain_operands_stay_certain():
    rows = {}
    for name in ("2-D, same", "strided, dilated", "groups of features"):
        function, inputs, weight = convolution(name)
        m, n, v, s = normal(*inputs), normal(*weight), spread(*inputs), spread(*weight)
        rows[f"{name}, inputs"] = lambda x, f=function, n=n: f(x, n), linear_moments, [(m, v)]
        rows[f"{name}, weights"] = lambda w, f=function, m=m: f(m, w), linear_moments, [(n, s)]
    agree(rows)


@pytest.mark.parametrize(
    "name", ["1-D", "mixed layouts", "groups of features", "groups of the batch"]
)
def test_full_mode_has_the_covariance_of_channels(name):
    function, inputs, weight = convolution(name)
    last = {"1-D": 1, "mixed layouts": 3}.get(name, 1)
    moved = lambda x: jnp.moveaxis(function(x, n), last, -1)  # noqa: E731
    m, n, v = normal(*inputs), normal(*weight), spread(*inputs)

    @by_numpy
    def run(v):
        result = propagate(moved, Moments(m, variance=v), covariance="full")
        jacobian = jax.jacfwd(moved)(m)
        flat = jacobian.reshape(*jacobian.shape[: -m.ndim], -1)
        return result.covariance, jnp.einsum("...ik,k,...jk->...ij", flat, v.ravel(), flat)

    actual, expected = run(v)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


def test_constant_weights_of_the_shape_of_the_result_are_weights():
    x = (normal(1, 2, 2), spread(1, 2, 2))
    function = lambda x: lax.conv(x, jnp.ones((2, 2, 1)), (1,), "VALID")  # noqa: E731
    check(function, linear_moments, x)


def channels_last(x, w, **options):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


def window_sum(x, size, stride, padding="VALID", start=0.0, reduce=lax.add):
    return lax.reduce_window(x, start, reduce, (1, size, size, 1), (1, stride, stride, 1), padding)


POOLS = {
    "2×2": lambda x: window_sum(x, 2, 2) / 4,
    "3×3, same": lambda x: window_sum(x, 3, 2, "SAME"),
    "dilated": lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
    ),
    "base dilation": lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "VALID", base_dilation=(1, 2, 2, 1)
    ),
    "twice": lambda x: window_sum(window_sum(x, 3, 1), 2, 2),
    "global": lambda x: x.mean((1, 2)),
    "padded": lambda x: window_sum(jnp.pad(x, ((0, 0), (1, 2), (0, 0), (0, 0))), 2, 2),
    "features first": lambda x: lax.reduce_window(
        jnp.moveaxis(x, 3, 1), 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
    ),
    "over the batch": lambda x: x.sum((0, 1)),
}


@pytest.mark.parametrize("names", [["2×2"], [*POOLS]], ids=["first", "all"])
def test_pools_know_that_positions_share_weights(names):
    x, weight = normal(2, 5, 5, 1), (normal(2, 2, 1, 2), spread(2, 2, 1, 2))
    layer = lambda w, b: channels_last(x, w) + b.reshape(1, 1, 1, 2)  # noqa: E731
    arrays = weight, (normal(2), spread(2))
    agree(
        {
            name: (lambda w, b, pool=POOLS[name]: pool(layer(w, b)), layer_moments, arrays)
            for name in names
        }
    )


@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_reduction_may_begin_with_another_number(name):
    reduce = getattr(lax, name)
    neutral = {"add": 0.0, "max": -jnp.inf, "min": jnp.inf}[name]
    combined = {"add": jnp.add, "max": jnp.maximum, "min": jnp.minimum}[name]

    def spelled_out(x):
        around = jnp.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=0.3)
        return combined(window_sum(around, 2, 2, "VALID", neutral, reduce), 0.3)

    def run(m, v):
        given = Moments(m, variance=v)
        first = propagate(lambda x: window_sum(x, 2, 2, "SAME", 0.3, reduce), given)
        second = propagate(spelled_out, given)
        return (first.mean, first.variance), (second.mean, second.variance)

    for ours, theirs in zip(*by_numpy(run)(normal(1, 3, 3, 1), spread(1, 3, 3, 1)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_pool_over_features_has_its_covariance():
    m, v = normal(2, 5), spread(2, 5)
    pool = lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "VALID")  # noqa: E731
    result = propagate(pool, Moments(m, variance=v), covariance="full")
    matrix = np.eye(4, 5) + np.eye(4, 5, 1)
    expected = np.einsum("ik,bk,jk->bij", matrix, v, matrix)
    np.testing.assert_allclose(result.covariance, expected, rtol=1e-10, atol=1e-12)


PADDINGS = {
    "around": lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=2.0),
    "between": lambda x: lax.pad(x, 1.0, ((0, 1, 2), (1, 0, 1))),
    "negative": lambda x: lax.pad(x, 0.0, ((-1, 0, 0), (2, -1, 1))),
}


CUMULATED = {
    f"axis {axis}, {reverse}": lambda x, axis=axis, reverse=reverse: lax.cumsum(x, axis, reverse)
    for axis in (0, 1)
    for reverse in (False, True)
}


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_paddings_and_cumulative_sums_are_exact(covariance):
    arrays = [(normal(3, 4), spread(3, 4))]
    functions = PADDINGS | CUMULATED
    agree({name: (f, linear_moments, arrays) for name, f in functions.items()}, covariance)


REFUSALS = {
    "another monoid": (
        lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"),
        r"(?s)reduction of windows by mul.*jax\.lax\.add",
    ),
    "largest of dilated": (
        lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID", base_dilation=(2, 1)
        ),
        r"(?s)base_dilation=\(2, 1\).*leave",
    ),
    "derivative": (
        lambda x: jax.grad(
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID").sum()
        )(x),
        "(?s)derivative of a pool.*outside of the model",
    ),
    "random filling": (
        lambda x: lax.pad(x, x[0, 0], ((1, 1, 0), (0, 0, 0))),
        "(?s)padding with a random value.*concatenation",
    ),
    "nothing but padding": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (1, 1), ((2, 0), (0, 0))),
        "(?s)nothing but padding.*smaller than the window",
    ),
    "its own weight": (
        lambda x: lax.conv(x[None, :2], x[:2, :2, None], (1,), "VALID"),
        "(?s)convolution depend on the same latent",
    ),
    "cumulative product": (lambda x: jnp.cumprod(x, 1), "cumprod"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_names_cause_and_remedy(name):
    function, message = REFUSALS[name]
    with pytest.raises(UnsupportedMoments, match=message) as refusal:
        propagate(function, Moments(normal(3, 3), variance=spread(3, 3)))
    assert "test_windows.py" in str(refusal.value)
    assert "input 0" in str(refusal.value)
