"""Covariance of activations of correlated Gaussians: exact, by DVI, or by a series."""

from __future__ import annotations

import numpy as np

from moment_calculus.functions.base import Activation, correlation
from moment_calculus.functions.pairs.completion import Operand, by_surrogate, function_covariance
from moment_calculus.functions.pairs.mehler import series
from moment_calculus.numerics.arrays import Array, diagonal, outer
from moment_calculus.numerics.normal.bivariate import is_single
from moment_calculus.numerics.special import constants, namespace

METHODS = ("exact", "dvi", "mehler")


def covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    *,
    method: str = "exact",
    order: int = 16,
) -> Array:
    """Covariance of f(x) for x ~ N(mean, covariance).

    Args:
        activation: f, applied to every component.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        method: ``"exact"`` uses the closed form and, for an activation that has none, Mehler's
            series, completed where it converges slowly; ``"dvi"`` the approximation of [DVI] for
            relu, leaky_relu and heaviside, and else the same as ``"exact"``; ``"mehler"`` the
            series for every activation.
        order: number of terms of the series; :func:`mehler_certificate` bounds the rest.

    Returns:
        Symmetric matrices [..., d, d] with the exact variance on the diagonal.

        Under ``"exact"``, pairs whose certificate is too large for order terms get 2 · order, and
        pairs for which these do not do either get the rest of the series from a similar function
        with known pairs (:meth:`Activation.surrogate`) or, where there is none, are integrated
        numerically. Measured with order = 16 for |μ/σ| ≤ 8, σ from 1e-3 to 1e2 and |ρ| < 1: in
        double precision off by less than 1e-8 or 1e-6 of the covariance; in single precision by
        less than 1e-4 of the standard deviations, for sigmoid and tanh with |μ| ≤ 6σ (GELU 1.1e-4
        at μ = −8σ; the rounding of ρ alone adds 1e-7/√(1 − ρ²)).

        Where values cannot steer the computation (``jax.jit``, ``jax.vmap``, ``torch.func.vmap``,
        ``make_fx``), and for functions whose parameters are arrays, it is always the series of
        2 · order terms, unless there is a closed form. The error of 32 terms, for sigmoids of
        standard deviation σ (tanh: σ/2), is at most 3e-8 for σ ≤ 2, 3e-6 for 3, 2e-4 for 5, 3e-3
        for 10 and 2e-2 for 100, at |ρ| = 1; it is below 1e-9 whenever |ρ| ≤ 0.6. For SiLU,
        softplus, Mish, ELU and tanh-GELU, in standard deviations, it is at most 1e-5 at σ = 1, 4e-3
        at 3 and 2e-2 from 10 on at |ρ| = 1, and 2e-4 at |ρ| = 0.9; for softsign and hardswish 3e-3,
        3e-2 and 1e-1, and 6e-4.

    Raises:
        ValueError: if ``method`` is unknown.

    Source: [DVI] Table 1 for ``"dvi"``; Price's theorem for ``"exact"``.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
    variance = diagonal(covariance)
    exact = activation.moments(mean, variance)[1]
    result = _off_diagonal(activation, mean, variance, covariance, method)
    if result is NotImplemented and method == "mehler":
        result = mehler(activation, mean, covariance, order=order)
    elif result is NotImplemented:
        surrogate = activation.surrogate(is_single(mean))
        if surrogate is None:
            operand = Operand(activation, mean, variance)
            result = function_covariance(operand, operand, covariance, order)
        else:
            result = by_surrogate(activation, surrogate, mean, covariance, exact, order)
    # the mask is built by hand because an array traced by jax.jit has no device to ask for
    diagonal_mask = constants(np.eye(mean.shape[-1]), mean) > 0
    return namespace(mean).where(diagonal_mask, exact[..., None], result)


def _off_diagonal(
    activation: Activation, mean: Array, variance: Array, covariance: Array, method: str
) -> Array:
    if method == "mehler":
        return NotImplemented
    rule = activation.dvi_covariance if method == "dvi" else activation.pair_covariance
    return rule(mean, variance, covariance)


def mehler(activation: Activation, mean: Array, covariance: Array, *, order: int = 16) -> Array:
    """Truncated Mehler series Σ ρⁿ g_n(x_i) g_n(x_j), n = 1 … order.

    Args:
        activation: f.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        order: number of terms.

    Returns:
        Positive semi-definite matrices [..., d, d], the diagonal truncated like the rest.

    Source: Mehler's formula.
    """
    variance = diagonal(covariance)
    coefficients = activation.hermite(mean, variance, order)
    return series(coefficients, coefficients, correlation(variance, covariance), outer)


def mehler_certificate(
    activation: Activation, mean: Array, covariance: Array, order: int = 16
) -> Array:
    """Bound on the absolute truncation error of :func:`mehler`, up to rounding.

    Args:
        activation: f.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        order: number of terms of the series.

    Returns:
        |ρ|^(order+1) √(gap_i gap_j) in [..., d, d], with gap = Var f − Σ g_n², at least 0.

    Source: Cauchy–Schwarz on the terms that are left out.
    """
    xp = namespace(mean)
    variance = diagonal(covariance)
    rho = correlation(variance, covariance)
    gap = activation.moments(mean, variance)[1]
    for coefficient in activation.hermite(mean, variance, order):
        gap = gap - coefficient * coefficient
    root = xp.clip(gap, min=0.0) ** 0.5
    return xp.abs(rho) ** (order + 1) * outer(root, root)
