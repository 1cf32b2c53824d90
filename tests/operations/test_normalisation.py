"""Normalisations, softmax and logsumexp against samples: the errors that their docstrings state."""

import math

import pytest
import torch
import torch.nn.functional as F

from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import LogSoftmax, logsumexp_value, softmax_value
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values import cross_covariance
from moment_calculus.values.propagation import Propagation

VARIANCES = (0.1, 1.0, 4.0)
SAMPLES = 20_000

RULES = {
    "layer_norm": (lambda x: normalise(x, eps=1e-5), lambda x: F.layer_norm(x, x.shape[-1:])),
    "rms_norm": (
        lambda x: normalise(x, eps=1e-5, centred=False),
        lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    ),
    "softmax": (softmax_value, lambda x: x.softmax(-1)),
    "logsumexp": (logsumexp_value, lambda x: x.logsumexp(-1, keepdim=True)),
    "log_softmax": (lambda x: LogSoftmax(x).gaussian(), lambda x: x.log_softmax(-1)),
}


def inputs(size: int, variance: float, seed: int, *, independent: bool) -> Moments:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(size, generator=generator, dtype=torch.float64)
    if independent:
        spread = 0.3 + 1.4 * torch.rand(size, generator=generator, dtype=torch.float64)
        return Moments(mean, covariance=torch.diag(variance * spread))
    factor = torch.randn(size, size, generator=generator, dtype=torch.float64)
    noise = 0.01 * variance * torch.eye(size)
    return Moments(mean, covariance=variance * factor @ factor.mT / size + noise)


def errors(name: str, moments: Moments, covariance: str) -> dict[str, float]:
    """Largest errors of means and variances, and of matrices in norm."""
    rule, plain = RULES[name]
    given = moments if covariance == "full" else Moments(moments.mean, variance=moments.variance)
    value = as_value(given, "x", Propagation(covariance))
    result = rule(value)
    z = torch.randn(
        SAMPLES, len(moments.mean), generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    x = moments.mean + z @ torch.linalg.cholesky(moments.covariance).mT
    y = plain(x)
    joint = (y - y.mean(0)).mT @ (y - y.mean(0)) / SAMPLES
    with_input = (y - y.mean(0)).mT @ (x - x.mean(0)) / SAMPLES
    size = joint.diagonal().mean()
    return {
        "mean": (result.mean - y.mean(0)).abs().max().item(),
        "variance": ((result.variance - joint.diagonal()).abs().max() / size).item(),
        "total": (result.variance.sum() / joint.diagonal().sum() - 1).abs().item(),
        "covariance": ((result.joint_covariance() - joint).norm() / joint.norm()).item(),
        "cross": ((cross_covariance(result, value) - with_input).norm() / with_input.norm()).item(),
    }


STATED = {  # at the variances above
    ("layer_norm", 8): {
        "mean": (0.01, 0.02, 0.02),
        "variance": (0.1, 0.2, 0.4),
        "total": (0.03, 0.03, 0.03),
        "covariance": (0.1, 0.2, 0.3),
        "cross": (0.05, 0.08, 0.12),
    },
    ("layer_norm", 32): {
        "mean": (0.004, 0.005, 0.007),
        "variance": (0.02, 0.07, 0.06),
        "total": (0.002, 0.002, 0.002),
        "covariance": (0.02, 0.04, 0.05),
        "cross": (0.02, 0.02, 0.03),
    },
    ("softmax", 5): {
        "mean": (0.001, 0.02, 0.05),
        "covariance": (0.03, 0.35, 0.75),
        "cross": (0.01, 0.15, 0.9),
    },
    ("logsumexp", 5): {"mean": (0.001, 0.06, 0.6), "variance": (0.1, 0.5, 0.3)},
    ("log_softmax", 5): {"mean": (0.001, 0.06, 0.6), "cross": (0.01, 0.15, 0.9)},
}
STATED["rms_norm", 8], STATED["rms_norm", 32] = STATED["layer_norm", 8], STATED["layer_norm", 32]


@pytest.mark.parametrize(("name", "size"), STATED)
@pytest.mark.parametrize("independent", [True, False])
def test_errors_are_as_stated(name, size, independent):
    covariance = "diagonal" if independent else "full"
    for place, variance in enumerate(VARIANCES):
        moments = inputs(size, variance, place, independent=independent)
        found = errors(name, moments, covariance)
        for part, bounds in STATED[name, size].items():
            scale = math.sqrt(variance) if name.startswith("log") else 1.0
            noise = 4 * (scale if part == "mean" else 2.0) / math.sqrt(SAMPLES)
            if part in ("covariance", "cross"):
                noise *= math.sqrt(size) / 2
            assert found[part] <= bounds[place] + noise, (variance, part, found[part])


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_one_feature_may_have_most_of_the_variance(name, size):
    """Of features that are taken as independent; the expansion states 0.8 of the deviations."""
    generator = torch.Generator().manual_seed(size)
    mean = torch.randn(20, size, generator=generator, dtype=torch.float64)
    variance = torch.full_like(mean, 0.01)
    variance[:, 0] = 4.0
    rule, plain = RULES[name]
    found = rule(as_value(Moments(mean, variance=variance), "x", Propagation("diagonal")))
    noise = torch.randn(50_000, 20, size, generator=generator, dtype=torch.float64)
    drawn = plain(mean + variance.sqrt() * noise)
    torch.testing.assert_close(found.variance.sqrt(), drawn.std(0), rtol=0.03, atol=1e-3)
    torch.testing.assert_close(found.mean, drawn.mean(0), rtol=0, atol=0.02)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_squares_of_normalised_features_add_up(name):
    """Σ y² = d, up to ε: exact at every variance."""
    for variance in VARIANCES:
        value = as_value(inputs(8, variance, 3, independent=False), "x", Propagation())
        result = RULES[name][0](value)
        total = (result.variance + result.mean**2).sum().item()
        assert total == pytest.approx(8.0, rel=1e-4)


def test_small_variances_are_propagated_by_the_jacobian():
    x = inputs(8, 1e-8, 0, independent=False)
    for name in ("layer_norm", "rms_norm", "softmax"):
        rule, plain = RULES[name]
        result = rule(as_value(x, "x", Propagation()))
        slope = torch.autograd.functional.jacobian(plain, x.mean)
        expected = slope @ x.covariance @ slope.mT
        torch.testing.assert_close(
            result.joint_covariance(), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item()
        )


def test_masked_logits_have_probability_zero():
    x = as_value(inputs(3, 1.0, 0, independent=False), "x", Propagation())
    x.mean[1] = -torch.inf
    x.covariance[1], x.covariance[:, 1] = 0.0, 0.0
    for rule in (softmax_value, logsumexp_value):
        assert torch.isfinite(rule(x).mean).all()
        assert torch.isfinite(rule(x).variance).all()
    probabilities = softmax_value(x)
    assert probabilities.mean[1] == 0.0
    assert probabilities.variance[1] == 0.0
    assert probabilities.mean.sum().item() == pytest.approx(1.0)
