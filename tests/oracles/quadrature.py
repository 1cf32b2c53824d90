"""Quadrature by which the rules are judged: it knows only the plain functions, not the formulas.

Everything is vectorised NumPy in float64. Panels are refined towards the kinks, so that the
results are relatively accurate (about 1e-12) in the tails as well.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
from scipy import integrate, optimize, stats
from scipy.integrate import quad

PLAIN = Callable[[np.ndarray], np.ndarray]
LEGENDRE = np.polynomial.legendre.leggauss(16)


def offsets(width: float, reach: float) -> np.ndarray:
    """Edges 0, ±w, ±2w, ±4w, … up to ``reach``: panels that grow away from a point."""
    steps = [width * 2.0**k for k in range(max(1, math.ceil(math.log2(reach / width))))]
    return np.array([-s for s in reversed(steps)] + [0.0] + steps)


def panels(edges: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights [p, 16] of E[·] under N(0, 1), by Gauss–Legendre between edges [..., n].

    The third array numbers the row of edges to which a panel belongs; empty panels are left out.
    """
    uniform = np.arange(-reach, reach + 1.0)
    uniform = np.broadcast_to(uniform, (*edges.shape[:-1], uniform.size))
    edges = np.sort(np.clip(np.concatenate([edges, uniform], axis=-1), -reach, reach), axis=-1)
    edges = edges.reshape(-1, edges.shape[-1])
    row, place = np.nonzero(edges[:, 1:] > edges[:, :-1])
    start = edges[row, place, None]
    half = (edges[row, place + 1, None] - start) / 2
    nodes = start + half * (1 + LEGENDRE[0])
    return nodes, half * LEGENDRE[1] * np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi), row


def normal_rule(edges: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights [m] of E[·] under N(0, 1) for one row of edges [n]."""
    nodes, weights, _ = panels(edges, reach)
    return nodes.ravel(), weights.ravel()


def _reach(growth: float, *scales: float) -> float:
    """Half width in standard deviations: |μ/σ| ≤ 8 plus a tail of 7, which leaves out less
    than 1e-30 of what lies beyond 8, plus the tilt of an exponential."""
    return math.ceil(15 + 2 * growth * sum(scales))


def activation_moments(
    plain: PLAIN, mean: float, scale: float, kinks: Sequence[float], growth: float = 0.0
) -> dict[str, float]:
    """Moments, Cov(x, f)/Var(x), root mean square of f(x), x ~ N(mean, scale²)."""
    reach = _reach(growth, scale)
    grids = [(kink - mean) / scale + offsets(min(1.0, 1 / scale), reach) for kink in kinks]
    z, weights = normal_rule(np.concatenate([np.zeros(1), *grids]), reach)
    centre = plain(np.array([mean]))[0]
    values = plain(mean + scale * z)
    shift = np.sum(weights * (values - centre))
    return {
        "mean": centre + shift,
        "variance": np.sum(weights * (values - centre - shift) ** 2),
        "gain": np.sum(weights * (values - centre) * z) / scale,
        "size": math.sqrt(np.sum(weights * values**2)),
    }


def hermite_coefficients(plain: PLAIN, mean: float, scale: float, kinks, order: int) -> list[float]:
    """E[f(x) He_n(z)]/√n! for n = 1 … order."""
    grids = [(kink - mean) / scale + offsets(min(1.0, 1 / scale), 30.0) for kink in kinks]
    z, weights = normal_rule(np.concatenate([np.zeros(1), *grids]), 30.0)
    values = plain(mean + scale * z) - plain(np.array([mean]))
    basis = np.polynomial.hermite_e.hermevander(z, order)[:, 1:]
    norms = [math.sqrt(math.factorial(n)) for n in range(1, order + 1)]
    return list((weights * values) @ basis / norms)


def activation_covariance(
    plain: PLAIN, mean: Sequence[float], scale: Sequence[float], rho: float, kinks, growth=0.0
) -> float:
    """Cov(f(x), f(y)) as E[(f(x) − m) (E[f(y) | x] − m′)], relatively accurate in the tails.

    f is centred at f(μ) first, so that a mean close to a plateau does not cancel.
    """
    reach, root = _reach(growth, *scale), math.sqrt(1 - rho * rho)
    width = min(1.0, 1 / scale[0])
    own = [(kink - mean[0]) / scale[0] + offsets(width, reach) for kink in kinks]
    turn = [(kink - mean[1]) / (scale[1] * rho) + offsets(root / 2, reach) for kink in kinks]
    z, weights = normal_rule(np.concatenate([np.zeros(1), *own, *turn]), reach)
    first = plain(mean[0] + scale[0] * z) - plain(np.array(mean[:1]))
    inner = [
        ((kink - mean[1]) / scale[1] - rho * z[:, None]) / root
        + offsets(min(1.0, 1 / (scale[1] * root)), reach)
        for kink in kinks
    ]
    w, inner_weights, row = panels(np.concatenate([0 * z[:, None], *inner], axis=-1), reach)
    y = mean[1] + scale[1] * (rho * z[row, None] + root * w)
    inner_sums = np.sum(inner_weights * (plain(y) - plain(np.array(mean[1:]))), axis=-1)
    second = np.bincount(row, inner_sums, minlength=z.size)
    first = first - np.sum(weights * first)
    second = second - np.sum(weights * second)
    return float(np.sum(weights * first * second))


@functools.cache
def hermite_grid(nodes: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Tensor Gauss–Hermite grid [n, dimensions] with weights [n]; exact to degree 2·nodes − 1."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    grid = np.array(list(itertools.product(points, repeat=dimensions)))
    product = np.array(list(itertools.product(weights, repeat=dimensions))).prod(axis=-1)
    return grid.reshape(-1, dimensions), product


@functools.cache
def narrow_grid(nodes: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`hermite_grid`, with narrow panels in the first dimension, for kinks anywhere."""
    first, share = normal_rule(np.arange(-10.0, 10.0, 0.02), 10.0)
    if dimensions == 1:
        return first[:, None], share
    rest, weights = hermite_grid(nodes, dimensions - 1)
    grid = np.concatenate(
        [np.repeat(first, len(rest))[:, None], np.tile(rest, (len(first), 1))], axis=1
    )
    return grid, np.outer(share, weights).ravel()


def sample_moments(
    samples: np.ndarray, weights: np.ndarray, axis: int | None
) -> dict[str, np.ndarray]:
    """Mean, variance and covariance over ``axis`` of weighted samples [n, ...]."""
    mean = np.tensordot(weights, samples, axes=1)
    centred = samples - mean
    last = centred[..., None] if axis is None else np.moveaxis(centred, axis, -1)
    covariance = np.einsum("s,s...i,s...j->...ij", weights, last, last)
    return {
        "mean": mean,
        "variance": np.tensordot(weights, centred**2, axes=1),
        "covariance": covariance,
    }


def gaussian_kl(mean, deviation, prior_mean, prior_deviation) -> np.ndarray:
    """E_q[log q − log p] by quadrature over q."""
    z, weights = normal_rule(np.zeros(1), 12.0)
    x = mean[..., None] + deviation[..., None] * z
    ratio = stats.norm.logpdf(x, mean[..., None], deviation[..., None]) - stats.norm.logpdf(
        x, prior_mean[..., None], prior_deviation[..., None]
    )
    return ratio @ weights


def gaussian_entropy(deviation) -> np.ndarray:
    """−E_q[log q] by quadrature over q."""
    z, weights = normal_rule(np.zeros(1), 12.0)
    scale = deviation[..., None]
    return -stats.norm.logpdf(scale * z, 0.0, scale) @ weights


def expected_log_prior(mean, deviation, prior_variance: float) -> float:
    """Σ E_q[log N(w; 0, λ)] by quadrature over every weight."""
    z, weights = normal_rule(np.zeros(1), 12.0)
    x = mean[:, None] + deviation[:, None] * z
    return float((stats.norm.logpdf(x, 0.0, math.sqrt(prior_variance)) @ weights).sum())


def best_prior_variance(mean, deviation, alpha: float, beta: float) -> float:
    """Numerical maximiser over λ of E_q[log N(w; 0, λ)] + log InvGamma(λ; α, β)."""

    def loss(log_variance: float) -> float:
        variance = math.exp(log_variance)
        return -expected_log_prior(mean, deviation, variance) - stats.invgamma.logpdf(
            variance, alpha, scale=beta
        )

    found = optimize.minimize_scalar(
        loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}
    )
    return math.exp(found.x)


def marginal_log_density(squared_norm: float, count: int, alpha: float, beta: float) -> float:
    """log ∫ Π N(w_j; 0, λ) InvGamma(λ; α, β) dλ by adaptive quadrature over log λ."""

    def integrand(log_variance: float) -> float:
        variance = math.exp(log_variance)
        prior = stats.invgamma.logpdf(variance, alpha, scale=beta) + log_variance
        exponent = -0.5 * (count * math.log(2 * math.pi * variance) + squared_norm / variance)
        return math.exp(exponent + prior)

    pieces = [
        integrate.quad(integrand, k, k + 2, epsabs=0, epsrel=1e-11)[0] for k in range(-8, 40, 2)
    ]
    return math.log(sum(pieces))


Function = Callable[[float], float]


def density(x: float, mean: float, scale: float) -> float:
    z = (x - mean) / scale
    return float(np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * scale))


def expectation(
    function: Function, mean: float, variance: float, kinks: Sequence[float] = (0.0,)
) -> float:
    """E[function(x)] for x ~ N(mean, variance), piecewise over mean ± 14 standard deviations."""
    scale = float(np.sqrt(variance))
    edges = {mean + scale * step for step in np.arange(-14, 15)}
    low, high = min(edges), max(edges)
    edges |= {kink for kink in (*kinks, *np.linspace(-30, 30, 31)) if low < kink < high}
    points = sorted(edges)
    pieces = [
        quad(lambda x: function(x) * density(x, mean, scale), left, right, epsrel=1e-12)[0]
        for left, right in itertools.pairwise(points)
    ]
    return float(np.sum(np.sort(pieces)))


def hermite(function: Function, mean: float, variance: float, order: int) -> float:
    """E[function(x) He_order(z)] / √order!."""
    scale = float(np.sqrt(variance))
    basis = np.polynomial.hermite_e.HermiteE.basis(order)
    norm = float(mp.sqrt(mp.factorial(order)))
    return expectation(lambda x: function(x) * basis((x - mean) / scale) / norm, mean, variance)


def step_covariance(a: float, b: float, rho: float) -> float:
    """Cov(1{x > −a}, 1{y > −b}) by Price's theorem, at 30 digits."""
    return float(_price(a, b, rho)[0])


def rectifier_covariance(a: float, b: float, rho: float) -> float:
    """Cov((x + a)₊, (y + b)₊) likewise."""
    with mp.workdps(30):
        total, turned = _price(a, b, rho)
        return float(rho * (mp.ncdf(a) * mp.ncdf(b) + total) - turned)


@functools.cache
def _price(a: float, b: float, rho: float) -> tuple[mp.mpf, mp.mpf]:
    """∫ φ₂(a, b; r) dr and ∫ r φ₂(a, b; r) dr from 0 to ρ, in the angle asin r."""
    with mp.workdps(30):
        a, b, rho = mp.mpf(a), mp.mpf(b), mp.mpf(rho)
        squares, product = a * a + b * b, 2 * a * b
        peak = max(a * a, b * b) / 2  # mp.quad stops on an absolute error: scale the peak to 1

        def integrand(y: mp.mpf) -> mp.mpc:
            r, root = mp.tanh(y), mp.sech(y)
            value = root * mp.exp(peak - (squares - product * r) / (2 * root * root))
            return mp.mpc(value, value * r)

        end = mp.atanh(rho) if abs(rho) < 1 else mp.sign(rho) * 40
        edges = [end * (mp.mpf(i) / 24) ** 2 for i in range(25)]  # dense at 0, where it may peak
        both = mp.quad(integrand, edges, method="gauss-legendre") * mp.exp(-peak) / (2 * mp.pi)
        return both.real, both.imag


def relative(actual: float, expected: float) -> float:
    return float(abs(actual - expected) / abs(expected)) if expected else float(abs(actual))
