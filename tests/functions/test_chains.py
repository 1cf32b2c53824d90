"""Chains of activations: their knots, their bounds, and what is recognised in them."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize

from moment_calculus.functions.combinators import Bounds
from moment_calculus.functions.table import ACTIVATIONS, Integrated, Smooth, activation
from moment_calculus.likelihoods.links import log
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.products import divide, multiply
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.propagation import Propagation
from tests.oracles import quadrature as oracles

SCALES = (1e-3, 0.1, 0.6, 3.0, 20.0, 100.0)
RATIOS = (-3.0, -1.5, 0.0, 0.7, 3.0)


def site(mean, variance) -> Gaussian:
    return site_value("h", mean, variance, Propagation())


def of(name, value, *parameters):
    return apply(activation(name, *parameters), value)


def plain(name, x, *parameters):
    return activation(name, *parameters)(np.asarray(x))


SILU_ROOT = optimize.brentq(lambda x: x / (1 + math.exp(-x)) - 0.25, 0, 1, xtol=1e-15)
TAPS = np.array([0.5, -0.4, 0.3, -0.2, 0.1])  # one for each element

# name: the chain, the plain function, and where it bends
CHAINS = {
    "relu_of_tanh": (
        lambda h, taps: of("relu", scale_shift(of("tanh", h), 1.0, -0.3)),
        lambda x, tap: np.maximum(np.tanh(x) - 0.3, 0.0),
        lambda tap: (0.0, math.atanh(0.3)),
    ),
    "step_of_silu": (
        lambda h, taps: of("heaviside", scale_shift(of("silu", h), 2.0, -0.5)),
        lambda x, tap: 1.0 * (plain("silu", x) > 0.25),
        lambda tap: (0.0, SILU_ROOT),
    ),
    "relu6_of_exp": (
        lambda h, taps: of("relu6", scale_shift(of("exp", h), 2.0, -1.0)),
        lambda x, tap: np.clip(2 * np.exp(np.minimum(x, 9.0)) - 1, 0.0, 6.0),
        lambda tap: (0.0, math.log(0.5), math.log(3.5)),
    ),
    "steep": (
        lambda h, taps: of("sigmoid", scale_shift(of("relu", h), 100.0, -50.0)),
        lambda x, tap: plain("sigmoid", 100 * np.maximum(x, 0) - 50),
        lambda tap: (0.0, 0.3, 0.5, 0.7),
    ),
    "array_shift": (
        lambda h, taps: of("relu", scale_shift(of("sigmoid", h), taps, -0.5 * taps)),
        lambda x, tap: np.maximum(tap * (plain("sigmoid", x) - 0.5), 0.0),
        lambda tap: (0.0,),
    ),
    "array_scale_of_relu": (
        lambda h, taps: of("abs", scale_shift(of("relu", h), taps, -0.2)),
        lambda x, tap: np.abs(tap * np.maximum(x, 0.0) - 0.2),
        lambda tap: (0.0, 0.2 / tap),
    ),
    "three": (
        lambda h, taps: of("relu", scale_shift(of("tanh", of("leaky_relu", h, 0.5)), -1.0, 0.2)),
        lambda x, tap: np.maximum(0.2 - np.tanh(plain("leaky_relu", x, 0.5)), 0.0),
        lambda tap: (0.0, math.atanh(0.2)),
    ),
    "fused": (
        lambda h, taps: add(multiply(h, of("sigmoid", h)), of("hardtanh", h)),
        lambda x, tap: plain("silu", x) + np.clip(x, -1, 1),
        lambda tap: (-1.0, 0.0, 1.0),
    ),
    "reciprocal": (
        lambda h, taps: divide(1.0, scale_shift(of("softplus", h), 1.0, 0.1)),
        lambda x, tap: 1 / (plain("softplus", x) + 0.1),
        lambda tap: (0.0,),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_moments_of_chains(name):
    """Mean, variance and expected derivative against quadrature that knows the kinks."""
    build, function, kinks = CHAINS[name]
    for scale in SCALES:
        mean = scale * np.array(RATIOS)
        value = build(site(mean, np.full(5, scale * scale)), TAPS)
        ours = value.function.moments(mean, np.full(5, scale * scale))
        gains = value.function.gain(mean, np.full(5, scale * scale))
        for i, tap in enumerate(TAPS):
            true = oracles.activation_moments(
                lambda x, tap=tap: function(x, tap), mean[i], scale, kinks(tap)
            )
            size, where = 1e-11 * true["size"], f"{name} μ={mean[i]} σ={scale}"
            assert_allclose(ours[0][i], true["mean"], 1e-6, size, err_msg=where)
            assert_allclose(ours[1][i], true["variance"], 2e-6, 1e-20, err_msg=where)
            assert_allclose(gains[i], true["gain"], 1e-6, size / scale, err_msg=where)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_finite_in_single_precision(name):
    build, function, _ = CHAINS[name]
    for ratio in (-1e4, -30.0, 0.0, 1.0, 1e4):
        for scale in (0.0, 1e-6, 1.0, 1e3):
            mean = torch.full((5,), ratio * (scale or 1e-3)).requires_grad_()
            variance = torch.full((5,), scale * scale).requires_grad_()
            value = build(site(mean, variance), torch.as_tensor(TAPS, dtype=torch.float32))
            outputs = value.function.moments(mean, variance)
            gradients = torch.autograd.grad(sum(part.sum() for part in outputs), (mean, variance))
            for part in (*outputs, *gradients):
                assert torch.isfinite(part).all(), (ratio, scale, part)
            assert (outputs[1] >= 0).all()
            if scale == 0:
                expected = [function(x, tap) for x, tap in zip(mean.tolist(), TAPS, strict=True)]
                assert_allclose(outputs[0].detach(), expected, rtol=1e-5, atol=1e-6)
                assert_allclose(outputs[1].detach(), 0.0, atol=1e-12)


def test_gradients_flow_to_the_parameters_of_a_chain():
    scale = torch.tensor([0.7, -1.2], dtype=torch.float64, requires_grad=True)
    mean, variance = (torch.tensor(part, dtype=torch.float64) for part in ([0.3, -0.4], [0.5, 2.0]))

    def total(scale):
        value = of("relu", scale_shift(of("tanh", site(mean, variance)), scale, 0.1))
        return sum(part.sum() for part in value.function.moments(mean, variance))

    assert torch.autograd.gradcheck(total, (scale,), eps=1e-5, atol=1e-7)


# ---------------------------------------------------------------------------------------------
# Recognition

ONE, HALF = np.array([0.4]), np.array([0.5])
RECOGNISED = {
    "log_exp": (lambda h: elementary.log(of("exp", h)), None),
    "log_exp2": (lambda h: elementary.log(of("exp2", h)), None),
    "log_of_scaled_exp": (lambda h: elementary.log(scale_shift(of("exp", h), 3.0)), None),
    "log1p_exp": (lambda h: elementary.log1p(of("exp", h)), "softplus"),
    "log_one_plus_exp": (lambda h: elementary.log(scale_shift(of("exp", h), 1.0, 1.0)), "softplus"),
    "log_sigmoid": (lambda h: elementary.log(of("sigmoid", h)), "logsigmoid"),
    "sqrt_exp": (lambda h: elementary.power(of("exp", h), 0.5), "exponential"),
    "root_of_inverse": (lambda h: elementary.power(divide(1.0, of("exp", h)), 0.5), "exponential"),
    "square_of_root": (lambda h: elementary.power(elementary.power(of("exp", h), 0.5), 2.0), "exp"),
    "base": (lambda h: elementary.exponential(2.0, h), "exponential"),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised(name):
    build, expected = RECOGNISED[name]
    value = build(site(ONE, HALF))
    if expected is None:
        assert isinstance(value, Gaussian)
    else:
        assert value.function.name == expected
        assert not isinstance(value.function, Integrated)


@pytest.mark.parametrize("name", ["softplus", "sigmoid", "ndtr"])
def test_links_are_not_recognised_by_name(name):
    """A function of a user's own may be called like one of ours."""
    namesake = Integrated(lambda x: 1.0 + x * x)
    object.__setattr__(namesake, "name", name)
    value = log(Deferred(site(ONE, HALF), namesake)).gaussian()
    grid = np.linspace(-12, 12, 20_001)
    weights = np.exp(-0.5 * grid**2) * (grid[1] - grid[0]) / math.sqrt(2 * math.pi)
    true = weights @ np.log1p((ONE + np.sqrt(HALF) * grid) ** 2)
    assert_allclose(value.mean, true, rtol=1e-6)


def test_power_zero_of_one_is_certain():
    value = elementary.exponential(1.0, site(ONE, HALF))
    assert_allclose(value.mean, 1.0)
    assert_allclose(value.variance, 0.0)


# ---------------------------------------------------------------------------------------------
# Bounds


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bounds_hold(name):
    parameters = {"threshold": (0.3, -2.0), "clamp": (-0.3, 0.8), "leaky_relu": (0.1,)}
    made = activation(name, *parameters.get(name, ()))
    values = made(np.linspace(-30, 30, 6001))
    low, high = made.bounds
    assert low <= values.min()
    assert values.max() <= high
    if not made.open_ended and math.isfinite(low):
        assert values.min() <= low + 0.05


@pytest.mark.parametrize(
    ("scale", "shift", "expected"),
    [
        (2.0, 0.0, Bounds(0.0, 2.0, True)),
        (-1.0, 1.0, Bounds(0.0, 1.0, True)),
        (0.0, 1.0, Bounds(1.0, 1.0, False)),
        (np.array([1.0, -2.0]), np.array([0.0, 3.0]), Bounds(-2.0, 4.0, True)),
    ],
)
def test_bounds_of_affine_maps(scale, shift, expected):
    assert Bounds(0.0, 1.0, True).affine(scale, shift) == expected


def test_bounds_of_traced_arrays_are_unknown():
    def positive_of(scale):
        value = scale_shift(of("exp", site(scale, scale)), scale)
        return torch.ones(1) * float(elementary.is_positive(value))

    assert float(positive_of(torch.ones(2)).sum()) == 1
    traced = torch.fx.experimental.proxy_tensor.make_fx(positive_of, tracing_mode="fake")
    assert float(traced(torch.ones(2))(torch.ones(2)).sum()) == 0


# ---------------------------------------------------------------------------------------------
# Preimages


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("relu", 0.4),
        ("leaky_relu", -0.4),
        ("abs", 0.7),
        ("hardtanh", 0.2),
        ("threshold", 0.7),
        ("exp", 0.7),
        ("expm1", -0.7),
        ("sigmoid", 0.7),
        ("tanh", -0.7),
        ("softplus", 0.7),
        ("logsigmoid", -0.7),
        ("mish", -0.2),
        ("gelu", 0.4),
        ("elu", -0.3),
        ("softsign", 0.4),
    ],
)
def test_preimages(name, level):
    """f(x) = level there, and the stretch is the inverse of the slope."""
    made = activation(name, *((0.3, -2.0) if name == "threshold" else ()))
    for number in (level, np.array(level)):
        found = [(float(x), float(s)) for x, s in made.preimages(number)]
        hits = [(x, s) for x, s in found if abs(float(made(np.array(x))) - level) < 1e-9]
        assert hits or (isinstance(made, Smooth) and not isinstance(number, float))
        for x, stretch in hits:
            slope = float(made(np.array(x + 1e-6)) - made(np.array(x - 1e-6))) / 2e-6
            assert stretch == pytest.approx(1 / abs(slope), rel=1e-4)


def test_levels_out_of_reach_have_no_preimage():
    for name in ("exp", "sigmoid", "tanh", "softplus"):
        assert activation(name).preimages(-3.0) == ()


def test_values_are_deferred_until_they_are_needed():
    value = of("relu", of("tanh", site(ONE, HALF)))
    assert isinstance(value, Deferred)
    assert value._gaussian is None


def test_gradients_see_the_jumps_of_a_chain():
    """Held nodes, whose density moves: the derivative of a step is the density at the step."""
    mean, variance = (
        torch.tensor(part, dtype=torch.float64, requires_grad=True)
        for part in ([0.3, -0.4, 2.0], [0.5, 2.0, 0.01])
    )

    def moments(mean, variance):
        chain = of("heaviside", scale_shift(of("tanh", site(mean, variance)), 1.0, -0.3))
        return chain.function.moments(mean, variance)

    def exact(mean, variance):
        return activation("heaviside").moments(mean - math.atanh(0.3), variance)

    for ours, true in zip(moments(mean, variance), exact(mean, variance), strict=True):
        gradients, expected = (
            torch.autograd.grad(part.sum(), (mean, variance), retain_graph=True)
            for part in (ours, true)
        )
        torch.testing.assert_close(gradients, expected, rtol=1e-7, atol=1e-12)
