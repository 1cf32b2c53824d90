"""Properties of activations: accuracy, and positive semi-definiteness."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.testing import assert_allclose

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.pairs import mehler
from moment_calculus.rulebooks.dvi import BOOK
from tests.cases.kinds import on_numpy
from tests.checks.general import needs, to_torch
from tests.oracles import quadrature as oracles

RELATIVE = 1e-6
SERIES = 5e-7  # rounding of a series, as a correlation
SMALLEST = 1e-37  # below it single precision loses digits
RATIOS = (-8.0, -3.0, -0.4, 0.0, 1.0, 5.0, 8.0)
SCALES = (1e-3, 0.1, 0.6, 3.0, 20.0, 100.0)
# μ/σ, σ and ρ
PAIRS = [
    ((0.5, -0.7), (0.6, 1.5), 0.4),
    ((0.5, -0.7), (0.6, 1.5), -0.4),
    ((1.0, 1.2), (0.3, 0.3), 0.999),
    ((1.0, -1.2), (0.3, 0.3), -0.999),
    ((0.0, 0.0), (1.0, 2.0), 0.9),
    ((-5.0, -6.0), (1.0, 1.0), 0.7),
    ((-8.0, -8.0), (0.1, 0.1), 0.95),
    ((8.0, 8.0), (0.01, 0.3), 0.5),
    ((8.0, -8.0), (1.0, 0.1), 0.3),
    ((-3.0, 2.0), (1e-3, 3.0), -0.6),
    ((3.0, 1.0), (100.0, 20.0), 0.8),
]


def check_moments(case: Any) -> None:
    """Mean, variance and expected derivative to 1e-6 of quadrature."""
    for scale in (s for s in SCALES if s <= case.largest_scale):
        mean = scale * np.array(RATIOS)
        variance = np.full_like(mean, scale * scale)
        centre, spread = case.activation.moments(mean, variance)
        gain = case.activation.gain(mean, variance)
        for i, mu in enumerate(mean):
            true = oracles.activation_moments(case.function, mu, scale, case.kinks, case.growth)
            size, where = 1e-12 * true["size"], f"μ={mu}, σ={scale}"
            assert_allclose(centre[i], true["mean"], RELATIVE, size, err_msg=f"mean, {where}")
            assert_allclose(spread[i], true["variance"], RELATIVE, err_msg=f"variance, {where}")
            assert_allclose(gain[i], true["gain"], RELATIVE, size / scale, err_msg=f"gain, {where}")


def check_single_precision(case: Any) -> None:
    """Single precision is within 1e-4 of double precision in the same range.

    A mean that crosses zero gets the slack of its terms.
    """
    for scale in (s for s in SCALES if s <= case.largest_scale):
        mean, variance = to_torch((scale * np.array(RATIOS), [scale * scale] * 7), torch.float32)
        double = mean.double(), variance.double()
        true, spread = case.activation.moments(*double)
        ours, ours_spread = case.activation.moments(mean, variance)
        crossing = true.abs() < 0.01 * (true**2 + spread) ** 0.5
        size = (double[0].abs() + scale) * case.activation.gain(*double).abs()
        slack = torch.where(crossing, 1e-6 * size, SMALLEST)
        where = f"σ={scale}: {ours} instead of {true}"
        assert ((ours - true).abs() <= 1e-4 * true.abs() + slack).all(), f"mean, {where}"
        error = (ours_spread - spread).abs()
        assert (error <= 1e-4 * spread + SMALLEST).all(), f"variance, {where}"


def check_hermite(case: Any) -> None:
    """Hermite coefficients by quadrature; squares within the variance."""
    for mean, scale in ((0.3, 0.2), (-1.0, 1.0), (2.0, 1.5)):
        arguments = np.array([mean]), np.array([scale * scale])
        ours = np.concatenate(case.activation.hermite(*arguments, 8))
        true = oracles.hermite_coefficients(case.function, mean, scale, case.kinks, 8)
        deviation = case.activation.moments(*arguments)[1] ** 0.5
        assert_allclose(ours, true, rtol=RELATIVE, atol=1e-7 * deviation[0])
        assert np.sum(ours**2) <= deviation[0] ** 2 * (1 + 1e-7)


def _pairs(case: Any) -> Iterator[tuple[np.ndarray, np.ndarray, float, float, str]]:
    """Mean [2], covariance [2, 2], true covariance and product of standard deviations."""
    truths = _true_covariances(case.torch, case.kinks, case.growth, case.largest_scale)
    for (ratios, scales, rho), true in zip(PAIRS, truths, strict=True):
        scale = np.minimum(scales, case.largest_scale / 3)
        mean = scale * ratios
        covariance = np.outer(scale, scale) * [[1, rho], [rho, 1]]
        deviations = case.activation.moments(mean, scale**2)[1] ** 0.5
        where = f"μ/σ={ratios}, σ={scale}, ρ={rho}"
        yield mean, covariance, true, float(np.prod(deviations)), where


@functools.lru_cache(maxsize=8)
def _true_covariances(plain: Any, kinks: Any, growth: float, largest_scale: float) -> list[float]:
    """The oracle at PAIRS, remembered for the checks of a row."""
    found = []
    for ratios, scales, rho in PAIRS:
        scale = np.minimum(scales, largest_scale / 3)
        arguments = scale * ratios, scale, rho, kinks, growth
        found.append(oracles.activation_covariance(on_numpy(plain), *arguments))
    return found


def check_pairs(case: Any) -> None:
    """Covariance of a pair against quadrature: relative error ≤ 1e-6, a series by its certificate.

    The series may also err by 1e-11.
    """
    for mean, covariance, true, _, where in _pairs(case):
        ours = pairs.covariance(case.activation, mean, covariance)[0, 1]
        arguments = case.activation, mean, covariance, pairs.ORDER
        slack = 0.0 if case.exact_pairs else 1e-11 + mehler.mehler_certificate(*arguments)[0, 1]
        allowed = max(slack, RELATIVE * abs(true))
        assert abs(ours - true) <= allowed, f"{where}: {ours} instead of {true} ± {allowed}"


def check_certificate(case: Any) -> None:
    """A truncated Mehler series errs by no more than its certificate."""
    for mean, covariance, true, size, where in _pairs(case):
        for order in (1, 4, 12):
            ours = mehler.mehler(case.activation, mean, covariance, order=order)[0, 1]
            bound = mehler.mehler_certificate(case.activation, mean, covariance, order)[0, 1]
            assert abs(ours - true) <= bound * (1 + 1e-6) + SERIES * size, f"{where}, order {order}"


@needs(lambda case: case.dvi_error)
def check_dvi(case: Any) -> None:
    """The approximation of [DVI] is as close as the row says for |ρ| < 0.75."""
    for mean, covariance, true, size, where in _pairs(case):
        ours = pairs.covariance(BOOK.ruled(case.activation), mean, covariance)[0, 1]
        scales = np.sqrt(np.diagonal(covariance))
        if abs(covariance[0, 1]) < 0.75 * np.prod(scales):
            assert abs(ours - true) <= case.dvi_error * max(size, np.prod(scales)), where


def check_positive_semi_definite(case: Any) -> None:
    """No covariance matrix has an eigenvalue below −1e-6 of its largest, in either precision."""
    generator, count = np.random.default_rng(2), 20
    factor = generator.normal(size=(count, 8, 8)) * np.geomspace(1, 1e-3, 8)
    scale = np.minimum(np.geomspace(0.01, 30, count), case.largest_scale / 3)
    factor = factor * scale[:, None, None]
    mean = generator.normal(size=(count, 8)) * np.linalg.norm(factor, axis=-1)
    for dtype in (torch.float64, torch.float32):
        root, centre = to_torch((factor, mean), dtype)
        matrix = pairs.covariance(case.activation, centre, root @ root.mT)
        assert_allclose(matrix, matrix.mT, rtol=1e-5, atol=0)
        values = np.linalg.eigvalsh(matrix.double().numpy())
        assert (values[:, 0] >= -1e-6 * values[:, -1]).all(), (dtype, values[:, 0] / values[:, -1])


ACTIVATION = [
    check_moments,
    check_single_precision,
    check_hermite,
    check_pairs,
    check_certificate,
    check_dvi,
    check_positive_semi_definite,
]
