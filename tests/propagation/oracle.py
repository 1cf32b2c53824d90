"""Closed forms by NumPy and SciPy: energies of data, divergences, densities."""

import jax
import numpy as np
import pyro
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from tests.checks.jaxprs import by_numpy
from tests.response.models import HOSTS, doubles, mean_field


def divergence(loc, scale):
    """KL(N(loc, scale²) ‖ N(0, 1)), summed."""
    loc, scale = np.asarray(loc), np.asarray(scale)
    return 0.5 * (scale**2 + loc**2 - 1 - 2 * np.log(scale)).sum()


def divergence_of_vector(loc, covariance):
    """KL(N(loc, covariance) ‖ N(0, 1))."""
    inner = np.trace(covariance) + loc @ loc - len(loc) - np.linalg.slogdet(covariance)[1]
    return 0.5 * inner


def expected(y, mean, covariance, noise, weights=1.0):
    """E[Σ_j w_j log N(y_j; f_j, noise²)] of f ~ N(mean, covariance), of one datum."""
    spread = (y - mean) ** 2 + np.diagonal(covariance)
    return (weights * (-0.5 * np.log(2 * np.pi * noise**2) - spread / noise**2 / 2)).sum()


def energy(alpha, y, mean, covariance, noise, weights=1.0):
    """(1/α) log E[Π_j N(y_j; f_j, noise²)^(α w_j)] of one datum, by the multivariate normal.

    A power of a Normal is another one, times a factor: N(y; f, s²)^a is
    N(y; f, s²/a) (2πs²)^((1 − a)/2) a^(−1/2).
    """
    y, mean = np.atleast_1d(y), np.atleast_1d(mean)
    covariance = np.reshape(covariance, (len(y), len(y)))
    powers, noises = (np.broadcast_to(part, y.shape) for part in (alpha * weights, noise))
    counted = powers > 0
    a, noises = powers[counted], noises[counted]
    if not a.size:
        return 0.0
    factors = 0.5 * (1 - a) * np.log(2 * np.pi * noises**2) - 0.5 * np.log(a)
    inner = covariance[np.ix_(counted, counted)] + np.diag(noises**2 / a)
    density = multivariate_normal(mean[counted], inner).logpdf(y[counted])
    return (density + factors.sum()) / alpha


def bernoulli_energy(alpha, y, mean, variance):
    """(1/α) log E[p(y | f)^α] of f ~ N(mean, variance), by quadrature."""
    sign, sd = 2 * y - 1, variance**0.5

    def integrand(z):
        return norm.pdf(z) * (1 + np.exp(-sign * (mean + sd * z))) ** -alpha

    return np.log(quad(integrand, -12, 12, epsabs=1e-14, epsrel=1e-12)[0]) / alpha


def renyi_bound(alpha, x, y, noise, loc, covariance):
    """(1/(1 − α)) log ∫ p(y, w)^(1 − α) q(w)^α dw of a regression with q = N(loc, covariance)."""
    return log_integral(1 - alpha, 1 - alpha, x, y, noise, loc, covariance) / (1 - alpha)


def cavity_energy(alpha, x, y, noise, loc, covariance):
    """(1/α) Σ_n log ∫ (p(y_n | w) (p(w) / q(w))^(1/N))^α q(w) dw, of the same."""
    posterior = noise, loc, covariance
    rows = (log_integral(alpha, alpha / len(y), x[[n]], y[[n]], *posterior) for n in range(len(y)))
    return sum(rows) / alpha


def log_integral(a, b, x, y, noise, loc, covariance):
    """Log ∫ p(y | w)^a p(w)^b q(w)^(1 − b) dw: the integrand is exp of a quadratic form of w."""
    loc, inverse, size = np.asarray(loc), np.linalg.inv(covariance), x.shape[1]
    precision = a * x.T @ x / noise**2 + b * np.eye(size) + (1 - b) * inverse
    linear = a * x.T @ y / noise**2 + (1 - b) * inverse @ loc
    log_data = len(y) * np.log(2 * np.pi * noise**2) + y @ y / noise**2
    log_q = np.linalg.slogdet(2 * np.pi * np.asarray(covariance))[1] + loc @ inverse @ loc
    constant = -0.5 * (a * log_data + b * size * np.log(2 * np.pi) + (1 - b) * log_q)
    assert np.linalg.eigvalsh(precision).min() > 0, "the integral is infinite"
    integral = size * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1]
    integral += linear @ np.linalg.solve(precision, linear)
    return constant + 0.5 * integral


def cavity_by_quadrature(alpha, size, row, noise, loc, scale):
    """(1/α) log E_q[(N(y; xθ, noise²)^weight (N(θ; 0, 1) / q(θ))^(1/size))^α], q = N(loc, scale²).

    A row is x, y and its weight; for α = 0 the limit.
    """
    x, y, weight = row

    def power(z):
        theta = loc + scale * z
        ratio = norm.logpdf(theta) - norm.logpdf(theta, loc, scale)
        log_term = weight * norm.logpdf(y, x * theta, noise) + ratio / size
        return norm.pdf(z) * (np.exp(alpha * log_term) if alpha else log_term)

    mean = quad(power, -12, 12, epsabs=1e-14, epsrel=1e-10)[0]
    return np.log(mean) / alpha if alpha else mean


def losses(host, objective, model, sites, *data, count=1, guide=None, params=None):
    """Losses in double precision, each with random numbers of its own."""
    with doubles(host):
        arrays = [host.array(part) for part in data]
        params = params or mean_field(host, **sites)
        guide = guide or host.package.DVIGuide()
        of = _in_numpyro if host.name == "numpyro" else _in_pyro
        return of(objective, model, guide, params, arrays, count)


def _in_numpyro(objective, model, guide, params, arrays, count):
    def loss(key):
        return objective.loss(key, params, model, guide, *arrays)

    keys = jax.random.split(jax.random.key(3), count)
    return np.asarray(by_numpy(jax.vmap(loss))(keys) if count > 1 else [by_numpy(loss)(keys[0])])


def of_batches(host, objective, model, sites, *data, batches):
    """One loss of each mini-batch, all of so many rows, in double precision."""
    if host.name == "pyro":
        parts = [[part[list(rows)] for part in data] for rows in batches]
        return np.array([losses(host, objective, model, sites, *batch)[0] for batch in parts])
    with doubles(host):
        params, guide = mean_field(host, **sites), host.package.DVIGuide()

        def loss(*batch):
            return objective.loss(jax.random.key(3), params, model, guide, *batch)

        return np.asarray(
            by_numpy(jax.vmap(loss))(*(host.array(part[np.array(batches)]) for part in data))
        )


def placed(host, model, guide, params, *arrays):
    """What ``predict`` takes of a guide at these parameters: in Pyro they are in its store."""
    if host.name == "numpyro":
        return (params,)
    if hasattr(guide, "bind"):
        guide.bind(model)
    with torch.no_grad():
        guide(*arrays)
    for name, value in params.items():
        pyro.get_param_store()[name] = value
    return ()


def _in_pyro(objective, model, guide, params, arrays, count):
    placed(HOSTS["pyro"], model, guide, params, *arrays)
    return np.array([objective.loss(model, guide, *arrays) for _ in range(count)])


def near(estimates, exact, errors=4.5):
    """Whether a mean of estimates is within so many of its standard errors."""
    error = np.std(estimates, ddof=1) / np.sqrt(len(estimates))
    return abs(np.mean(estimates) - exact) < errors * error
