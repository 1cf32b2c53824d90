"""Every spelling of an activation gives the moments of its function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import nn, scipy
from numpy.testing import assert_allclose

from moment_calculus.functions.table import Integrated
from moment_calculus.values.deferred import Deferred, unscaled
from numpyro_moments import Moments, UnsupportedMoments, propagate
from tests.cases import ACTIVATIONS
from tests.checks.jaxprs import by_numpy
from tests.numpyro.functions.chains import INTEGRATED, JUMPING, SPELLINGS
from tests.numpyro.functions.elementwise import MEAN, SCALE, VARIANCE, grid, grids, noisy, traced

slopes = np.array([0.1, -0.4, 0.7])
ROWS = {case.name: case for case in ACTIVATIONS}


def is_closed(value) -> bool:
    """Whether the moments come without quadrature over a chain."""
    if not isinstance(value, Deferred):
        return True
    return not isinstance(value.policy.recognised_function(unscaled(value.function)), Integrated)


FEW = ["window", "sigmoid by exp", "huber", "threshold array"]


@pytest.mark.parametrize("names", [FEW, [*SPELLINGS, *INTEGRATED]], ids=["few", "all"])
def test_other_spellings_and_chains(names):
    """By one program; without jumps a fifth of the grid errs by 1e-8."""
    smooth = {name: {**SPELLINGS, **INTEGRATED}[name] for name in names}

    @by_numpy
    def program(mean, variance):
        inputs = Moments(mean, variance=variance)
        return {name: results(propagate(f, inputs)) for name, f in smooth.items()}

    with jax.enable_x64(True):
        moments = program(jnp.asarray(MEAN), jnp.asarray(VARIANCE))
    jumping = {name: smooth.pop(name) for name in JUMPING if name in names}
    for functions, points, tolerance in ((smooth, 40_001, 1e-7), (jumping, 200_001, 5e-5)):
        for name, exact in grids(functions, points).items():
            assert_allclose(moments[name], exact, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("function", [*(case.jax for case in ROWS.values()), *SPELLINGS.values()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_with_a_closed_form_are_recognised(function, dtype):
    assert is_closed(traced(function, dtype)) == (function is not ROWS["chain"].jax)


@pytest.mark.parametrize("name", INTEGRATED)
def test_what_has_no_closed_form_is_integrated(name):
    assert not is_closed(traced(INTEGRATED[name], np.float64))


REFUSED = {
    "log": (jnp.log, "log of a Gaussian is not defined", "exp or softplus"),
    "log of relu": (lambda h: jnp.log(nn.relu(h)), r"close to zero \(it is ≥ 0\)", "positive"),
    "log1p": (jnp.log1p, "log1p of a Gaussian", "positive"),
    "square root": (jnp.sqrt, "power 0.5 of a Gaussian", "positive"),
    "root of a clipped sum": (
        lambda h: jax.lax.rsqrt(jnp.maximum(jnp.abs(h).sum(-1), 0) + 1e-6),
        "power -0.5 of a value that is clipped at 1e-06",
        "sample_sites",
    ),
    "logarithm of a clipped sum": (
        lambda h: jnp.log(jnp.maximum(jnp.exp(h[0]) + jnp.exp(h[1]) - 0.5, 1e-6)),
        "log of a value that is clipped at 1e-06",
        "sample_sites",
    ),
    "logarithm of a clipped softmax": (
        lambda h: jnp.log(jnp.clip(nn.softmax(h), 1e-6)),
        "log of a value that is clipped at 1e-06",
        "log_softmax",
    ),
    "cube root": (jnp.cbrt, "power 0.333333 of a Gaussian", "positive"),
    "reciprocal": (jnp.reciprocal, "power -1 of a Gaussian", "positive"),
    "division": (lambda h: 1 / h, "no moments", "exp(-s)"),
    "negative power": (lambda h: h**-2, "power -2 of a Gaussian", "positive"),
    "random power": (lambda h: jnp.power(h, h), "random power of a random value", "certain"),
    "negative base": (lambda h: (-2.0) ** h, "not positive", "positive base"),
    "tangent": (jnp.tan, "poles", "tanh"),
    "floor": (jnp.floor, "infinitely many places", "heaviside"),
    "ceiling": (jnp.ceil, "infinitely many places", "heaviside"),
    "rounding": (jnp.round, "infinitely many places", "heaviside"),
    "remainder": (lambda h: jax.lax.rem(h, 2.0), "infinitely many places", "sin"),
    "inverse error function": (scipy.special.erfinv, "ends of the interval", "ndtr"),
    "arc sine": (jnp.arcsin, r"may leave \[-1, 1\]", "tanh"),
    "area tangent": (jnp.arctanh, "ends of the interval", "parametrise"),
    "gamma": (jax.lax.lgamma, r"may leave \(0, inf\)", "softplus"),
    "unknown exponent": (lambda h: jnp.power(h, slopes), "not one number known", "exp or sigmoid"),
    "two directions": (lambda h: jnp.arctan2(h, 1.0), "two values", "arctan"),
    "stopped gradient": (jax.lax.stop_gradient, "without its gradient", "certain parameters"),
    "fewer digits": (lambda h: jax.lax.reduce_precision(h, 5, 7), "fewer digits", "astype"),
    "integers": (lambda h: h.astype(int), "conversion of a random value to int", "floating"),
    "condition that escapes": (lambda h: jnp.any(h > 0), "no moment rule", "sample_sites"),
    "condition among others": (
        lambda h: jnp.where(h > 0, h, jnp.where(h > 1, h > 0, True)),
        "does not take it",
        "sample_sites",
    ),
    "condition as result": (lambda h: h > 0, "does not take it", "sample_sites"),
    "infinite choice": (lambda h: jnp.where(h > 0, h, -jnp.inf), "may be -inf", "finite"),
    "array for a chain": (lambda h: jnp.tanh(h) > slopes, r"of shape \(1, 3\)", "with a number"),
    "two arrays": (
        lambda h: jnp.where((h > slopes) & (h < 2 * slopes + 1), h, 0.0),
        "two arrays at once",
        "clip",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, cause, remedy = REFUSED[name]
    with pytest.raises(UnsupportedMoments, match=cause) as refusal:
        jax.eval_shape(lambda: results(propagate(function, noisy())))
    message = str(refusal.value)
    assert "latent sites: input 0" in message
    assert "torch" not in message
    assert remedy in message.partition("remedy: ")[2]


def results(moments):
    return moments.mean, moments.variance


TWO = {
    "condition of another": (lambda x, y: jnp.where(x > 0, y, 0.0), "functions of another"),
    "conditions of two": (lambda x, y: jnp.where((x > 0) & (y > 0), x, 0.0), "of another"),
    "comparison of functions": (lambda x, y: 1.0 * (jnp.tanh(x) > y), "different random values"),
    "choice of two": (lambda x, y: jnp.where(x > y, x, y), "functions of another"),
}


@pytest.mark.parametrize("name", TWO)
def test_conditions_on_two_values_are_refused(name):
    function, cause = TWO[name]
    with pytest.raises(UnsupportedMoments, match=cause) as refusal:
        propagate(function, noisy(), noisy())
    assert "input 0" in str(refusal.value)
    assert "input 1" in str(refusal.value)


def test_two_values():
    """A comparison of two Gaussians has a probability; logaddexp is exact for one that is sure."""

    @by_numpy
    def program():
        more = propagate(lambda x, y: jnp.where(x > y, 2.0, 1.0), noisy(), noisy())
        sure = Moments(+MEAN, variance=1e-12 * VARIANCE)
        return more.mean, propagate(jnp.logaddexp, noisy(), sure).mean

    with jax.enable_x64(True):
        more, both = program()
    assert_allclose(more, np.full(MEAN.shape, 1.5), rtol=1e-9)
    assert_allclose(both, grid(lambda h: jnp.logaddexp(h, +MEAN))[0], rtol=1e-7)


def test_levels_get_their_gradient():
    """Also where the function jumps there."""

    def total(level, function):
        moments = propagate(lambda h: function(h, level), noisy())
        return jnp.sum(moments.mean)

    jumping = {
        "relu": lambda h, level: jnp.where(h > level, h - level, 0.0),
        "jump": lambda h, level: jnp.where(h > level, h, 0.0),
        "gate": lambda h, level: h * (h > level),
    }
    level = np.array([0.3, -0.2, 0.1])
    with jax.enable_x64(True):
        slopes_of = by_numpy(lambda at: {n: jax.grad(total)(at, f) for n, f in jumping.items()})
        gradients = slopes_of(level)
    z = (MEAN - level) / SCALE
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) / SCALE
    expected = -(level * density).sum(0)
    assert_allclose(gradients["relu"], -np.asarray(scipy.special.ndtr(z)).sum(0), rtol=1e-5)
    assert_allclose(gradients["jump"], expected, rtol=1e-6)
    assert_allclose(gradients["gate"], expected, rtol=1e-6)


EXTREMES = {
    "gelu": nn.gelu,
    "relu": lambda h: jnp.where(h > 0, h, 0),
    "clip": lambda h: jnp.clip(h, -1, 1),
    "huber": INTEGRATED["huber"],
    "log ndtr": scipy.special.log_ndtr,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_arguments_have_finite_moments_and_gradients(dtype):
    ratio, scale = np.meshgrid([-1e4, -30, -1, 0, 2, 30, 1e4], 10.0 ** np.arange(-6, 4))

    def total(mean, scale):
        inputs = Moments(mean, variance=scale**2)
        found = {name: propagate(function, inputs) for name, function in EXTREMES.items()}
        pairs = {name: (moments.mean, moments.variance) for name, moments in found.items()}
        return sum(jnp.sum(part) for part in jax.tree.leaves(pairs)), pairs

    with jax.enable_x64(dtype is np.float64):
        mean, scale = jnp.asarray(ratio * scale, dtype), jnp.asarray(scale, dtype)
        slopes_of = by_numpy(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))
        (_, found), gradients = slopes_of(mean, scale)
    for name, (centre, spread) in found.items():
        assert np.isfinite(centre).all(), name
        assert np.isfinite(spread).all(), name
        assert (spread >= 0).all(), name
        assert centre.dtype == dtype
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_other_precisions_keep_the_value():

    @by_numpy
    def program():
        single = propagate(lambda h: jnp.exp(h.astype(jnp.float32)), noisy())
        return single.mean, propagate(jnp.exp, noisy()).mean

    with jax.enable_x64(True):
        single, plain = program()
    assert single.dtype == jnp.float32
    assert_allclose(single, plain, rtol=1e-5)
