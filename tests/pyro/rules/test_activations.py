"""Every spelling of an activation gives the moments of its function."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pyro_moments import SVI, DeterministicELBO, DVIGuide, Moments, UnsupportedMoments, propagate
from tests.pyro import models

MEAN = torch.tensor([[1.0, -2.0, 0.1], [0.5, 3.0, -0.7]], dtype=torch.float64)
SCALE = torch.tensor([[0.5, 1.5, 0.2], [0.9, 0.3, 2.0]], dtype=torch.float64)
NOISY = Moments(MEAN, variance=SCALE**2)
slopes = torch.tensor([0.1, -0.4, 0.7], dtype=torch.float64)
bounds = torch.tensor([-0.4, 0.3, 0.6], dtype=torch.float64)


def grid(function) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of a plain elementwise function, by a fine grid over each component."""
    z = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    weights = torch.softmax(-0.5 * z**2, 0)[:, None, None]
    values = torch.vmap(function)(MEAN + SCALE * z[:, None, None])
    mean = (weights * values).sum(0)
    return mean, (weights * (values - mean) ** 2).sum(0)


def check(function, tolerance: float = 1e-6) -> None:
    mean, variance = grid(function)
    for covariance in ("full", "diagonal"):
        result = propagate(function, NOISY, covariance=covariance)
        torch.testing.assert_close(result.mean, mean, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(result.variance, variance, rtol=tolerance, atol=tolerance)


# Names without arguments; each is looked up in torch, F, torch.special and torch.Tensor.
PLAIN = (
    "abs absolute cos erf erfc exp exp2 expm1 expit hardsigmoid hardswish logsigmoid mish ndtr relu"
    " relu6 selu sigmoid silu sin softsign tanh tanhshrink square gelu elu celu softplus"
    " softshrink hardshrink hardtanh"
).split()
OWNERS = {"torch": torch, "F": F, "special": torch.special, "Tensor": torch.Tensor}
JUMPS = ("hardshrink", "threshold")


def spellings() -> list:
    found = []
    for name in PLAIN:
        for place, owner in OWNERS.items():
            for variant in (name, f"{name}_"):
                if hasattr(owner, variant):
                    found.append(pytest.param(getattr(owner, variant), id=f"{place}.{variant}"))
    return found


@pytest.mark.parametrize("function", spellings())
def test_every_spelling(function):
    tolerance = 2e-3 if function.__name__.strip("_") in JUMPS else 1e-6
    check(lambda h: function(h * 1.0), tolerance)


WITH_ARGUMENTS = {
    "elu": lambda h: F.elu(h, alpha=0.3),
    "celu": lambda h: F.celu(h, 2.0),
    "gelu_tanh": lambda h: F.gelu(h, approximate="tanh"),
    "softplus": lambda h: F.softplus(h, beta=3.0, threshold=30),
    "softshrink": lambda h: F.softshrink(h, 0.2),
    "hardtanh": lambda h: F.hardtanh(h, -0.5, max_val=2.0),
    "leaky_relu": lambda h: F.leaky_relu(h, -0.2),
    "clamp": lambda h: torch.clamp(h, -0.5, 2.0),
    "clamp_reversed": lambda h: torch.clamp(h, 2.0, -0.5) + 0 * h,
    "clamp_min": lambda h: h.clamp(min=0.2) + h.clamp_min(torch.tensor(0.2)),
    "clip": lambda h: h.clip(max=0.2) - torch.clamp_max(h, -0.2),
    "clamp_tensor": lambda h: torch.clamp(h, min=bounds),
    "clamp_tensors": lambda h: torch.clamp(h, bounds - 0.5, bounds + 0.5),
    "prelu": lambda h: F.prelu(h, slopes),
    "prelu_one": lambda h: torch.prelu(h, slopes[:1]),
    "prelu_of_chain": lambda h: F.prelu(torch.tanh(h), slopes),
    "pow": lambda h: torch.pow(h, 3) + h**2,
    "pow_one": lambda h: h**1,
    "power_of_number": lambda h: 2.0**h + torch.pow(1.3, h),
    "power_of_tensor": lambda h: torch.tensor([1.5, 2.0, 0.5], dtype=torch.float64) ** h,
    "powers_by_tensor": lambda h: torch.sigmoid(h) ** slopes - F.softplus(h) ** (1 + slopes),
    "hurdle": lambda h: torch.log(1 - torch.exp(-torch.exp(h))),
    "hurdle_log1p": lambda h: torch.log1p(-torch.exp(-F.softplus(h))),
    "hurdle_expm1": lambda h: torch.log(-2 * torch.expm1(-torch.exp(h))),
    "log_of_odds": lambda h: torch.log(torch.expm1(torch.exp(0.3 * h))),
    "abs_builtin": lambda h: abs(h),
    "log_exp": lambda h: torch.log(2 * torch.exp(h)),
    "log_sigmoid": lambda h: torch.log(torch.sigmoid(h)) + torch.log2(h.sigmoid()),
    "log_of_softplus": lambda h: torch.log(F.softplus(h)),
    "log1p_exp": lambda h: torch.log1p(torch.exp(h)) + torch.log(1 + torch.exp(h)),
    "log1p_of_square": lambda h: torch.log1p(h**2) + torch.log10(0.5 + h.square()),
    "rsqrt_exp": lambda h: 1 / torch.sqrt(2 * torch.exp(h)) + torch.exp(h).rsqrt(),
    "real_power": lambda h: F.softplus(h) ** 0.7 + torch.sqrt(torch.relu(h) + 0.1),
    "reciprocal": lambda h: torch.reciprocal(1 + torch.exp(h)) + 1.0 / (1 + h.abs()),
    "nested_roots": lambda h: (0.1 + torch.sqrt(1 / torch.sqrt(0.2 + h.abs()))).log().sigmoid(),
    "quotient": lambda h: h / (0.1 + F.softplus(h)),
    "quotient_of_one": lambda h: torch.exp(h) / (1 + torch.exp(h)),
    "one_minus_sigmoid": lambda h: torch.log(1 - torch.sigmoid(h)),
    "chain_of_kinks": lambda h: torch.relu(torch.tanh(h) - 0.3) + F.relu6(2 * torch.exp(h) - 1),
    "scaled_gate": lambda h: h * torch.sigmoid(1.7 * h) - F.relu(0.5 * h - 0.1) * h.tanh(),
    "radial": lambda h: torch.exp(-h * h / 2) + h * torch.exp(-0.5 * (h - slopes) ** 2),
    "polynomial": lambda h: torch.sigmoid((2 * h - 1) * (h + slopes)) + h * h * h,
    "inverse_tangent": lambda h: torch.arctan(h) + h.asinh(),
    "hyperbolic": lambda h: torch.sinh(0.5 * h) + torch.log(torch.cosh(h)),
    "arcs": lambda h: torch.asin(0.9 * torch.tanh(h)) - torch.acosh(torch.cosh(h) + 0.1),
    "gamma": lambda h: torch.lgamma(1 + F.softplus(h)) + torch.special.psi(0.5 + torch.exp(h)),
    "log_ndtr": lambda h: torch.special.log_ndtr(h) + torch.log(torch.special.ndtr(0.2 * h)),
    "logaddexp": lambda h: torch.logaddexp(h, slopes) - torch.nan_to_num(h) * torch.isfinite(h),
    "chain_of_tensors": lambda h: torch.relu(torch.sigmoid(h) * slopes + 0.1 * slopes),
}


@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_arguments_and_chains(name):
    check(WITH_ARGUMENTS[name], 1e-5)


MODULES = [
    nn.ReLU(inplace=True),
    nn.LeakyReLU(0.2, inplace=True),
    nn.PReLU(3, dtype=torch.float64),
    nn.ReLU6(),
    nn.Hardtanh(-1.0, 2.0, inplace=True),
    nn.Hardsigmoid(),
    nn.Hardswish(),
    nn.Sigmoid(),
    nn.LogSigmoid(),
    nn.Tanh(),
    nn.Tanhshrink(),
    nn.Softplus(2.0),
    nn.SiLU(),
    nn.Mish(inplace=True),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.ELU(0.5, inplace=True),
    nn.CELU(2.0),
    nn.SELU(),
    nn.Softsign(),
    nn.Softshrink(0.3),
    nn.Threshold(0.1, 0.1),
]


@pytest.mark.parametrize("module", MODULES, ids=repr)
def test_modules_under_the_literal_line(module):
    """A Sequential with the module trains; alone it gives the moments of the plain function."""
    check(lambda h: module(h * 1.0))
    x = torch.linspace(-1, 1, 8)[:, None]
    model = models.Regression(nn.Sequential(nn.Linear(1, 3), module.float(), nn.Linear(3, 1)))
    svi = SVI(model, DVIGuide(), DeterministicELBO())
    losses = [svi.step(x, torch.sin(3 * x[:, 0])) for _ in range(3)]
    assert all(torch.isfinite(torch.tensor(loss)) for loss in losses)
    assert losses[-1] < losses[0]


def test_slopes_of_prelu_get_their_gradient():
    weight = slopes.clone().requires_grad_()
    result = propagate(lambda h: F.prelu(h, weight), NOISY)
    (gradient,) = torch.autograd.grad(result.mean.sum() + result.variance.sum(), weight)

    def total(weight):
        moments = grid(lambda h: F.prelu(h, weight))
        return sum(part.sum(0) for part in moments)

    difference = (total(slopes + 1e-4) - total(slopes - 1e-4)) / 2e-4
    torch.testing.assert_close(gradient, difference, rtol=1e-5, atol=1e-6)


def test_bounds_of_clamp_get_their_gradient():
    low = torch.tensor(-0.2, dtype=torch.float64, requires_grad=True)
    result = propagate(lambda h: torch.clamp(h, min=low), NOISY)
    (gradient,) = torch.autograd.grad(result.mean.sum(), low)
    reach = torch.special.ndtr((-0.2 - MEAN) / SCALE).sum()
    torch.testing.assert_close(gradient, reach)


def test_channels_of_prelu_are_the_second_axis():
    image = Moments(MEAN[None, :, :, None], variance=SCALE[None, :, :, None] ** 2)
    result = propagate(lambda h: F.prelu(h, slopes[:2]), image)
    alone = propagate(lambda h: F.prelu(h, slopes[1:2]), NOISY)
    torch.testing.assert_close(result.mean[0, 1, :, 0], alone.mean[1])
    torch.testing.assert_close(result.variance[0, 1, :, 0], alone.variance[1])


learnt = torch.tensor(0.3, requires_grad=True)
REFUSED = {
    "alpha": (lambda h: F.elu(h, h), "alpha is random"),
    "learnt alpha": (lambda h: F.elu(h, learnt), "no gradient flows to the parameter alpha"),
    "slope": (lambda h: F.leaky_relu(h, h), "negative_slope is random"),
    "weight": (lambda h: F.prelu(h, h[0]), "weight is random"),
    "bound": (lambda h: torch.clamp(h, min=h), "min is random"),
    "bound of certain": (lambda h: torch.clamp(MEAN, max=h), "certain value|max is random"),
    "threshold": (lambda h: F.softplus(h, 1.0, 5.0), "threshold=5 is not above 19"),
    "celu": (lambda h: F.celu(h, -1.0), "alpha=-1 is not above 0"),
    "softshrink": (lambda h: F.softshrink(h, -1.0), "lambd=-1 is not above 0"),
    "softshrink at zero": (lambda h: F.softshrink(h, 0.0), "lambd=0 is not above 0"),
    "softplus": (lambda h: F.softplus(h, beta=0.0), "beta=0 is not above 0"),
    "log": (lambda h: torch.log(h), "log of a Gaussian is not defined"),
    "log of relu": (lambda h: torch.log(torch.relu(h)), r"close to zero \(it is ≥ 0\)"),
    "log1p": (lambda h: torch.log1p(h), "log1p of a Gaussian"),
    "log1p of tanh": (lambda h: torch.log1p(2 * torch.tanh(h)), "log1p of a function"),
    "sqrt": (lambda h: h.sqrt(), "power 0.5 of a Gaussian"),
    "reciprocal": (lambda h: 1 / h, "no moments"),
    "reciprocal of square": (lambda h: 1 / h**2, "no moments"),
    "reciprocal of cdf": (lambda h: torch.special.ndtr(h).reciprocal(), "close to zero"),
    "reciprocal of e^(−e^h)": (lambda h: 1 / torch.exp(-torch.exp(h)), "no moments"),
    "power": (lambda h: h**1.5, "power 1.5 of a Gaussian"),
    "negative power": (lambda h: torch.relu(h) ** -2, "power -2 of a function"),
    "random power": (lambda h: h**h, "random power of a random value"),
    "negative base": (lambda h: (-2.0) ** h, "not positive"),
    "exponents": (lambda h: torch.tanh(h) ** slopes, "may be negative or zero, by an exponent"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, message = REFUSED[name]
    with pytest.raises(UnsupportedMoments, match=message) as refusal:
        propagate(function, NOISY)
    assert "input 0" in str(refusal.value) or "learnt" in name
    assert "remedy: " in str(refusal.value)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("base", [torch.exp, torch.sigmoid])
def test_powers_by_tensors_have_gradients(base, shape):
    exponent = torch.full(shape, 0.3, requires_grad=True)
    given, by_hand = (
        propagate(function, NOISY)
        for function in (
            lambda h: base(h) ** exponent,
            lambda h: torch.exp(exponent * torch.log(base(h))),
        )
    )
    torch.testing.assert_close(given.variance, by_hand.variance)
    slopes = (torch.autograd.grad(m.variance.sum(), exponent)[0] for m in (given, by_hand))
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_gated_unit_is_the_product_of_its_halves(covariance):
    layer = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))

    def by_hand(x):
        content, gate = F.linear(x, layer).chunk(2, -1)
        return content * torch.sigmoid(gate)

    noisy = Moments(torch.ones(4, 3), variance=torch.full((4, 3), 0.3))
    gated = lambda x: F.glu(F.linear(x, layer))  # noqa: E731
    result, expected = (propagate(f, noisy, covariance=covariance) for f in (gated, by_hand))
    assert torch.equal(result.mean, expected.mean)
    assert torch.equal(result.variance, expected.variance)
