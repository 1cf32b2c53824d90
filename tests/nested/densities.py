"""Log densities of hyperparameters with known evidence and marginals."""

import numpy as np
from scipy.special import gammaln, logsumexp

SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def gaussian(points):
    """Two, correlated .9."""
    x, y = (points - [3.0, -2.0]).T
    return -0.5 * (x**2 - 1.8 * x * y + y**2) / (1 - 0.81)


def log_gammas(shapes, mixing):
    """Mixing times theta is a vector of logs of Gamma(shape, shape) variables."""
    shapes, mixing = np.asarray(shapes, dtype=float), np.asarray(mixing, dtype=float)

    def evaluate(points):
        logs = points @ mixing.T
        return np.sum(shapes * (logs - np.exp(logs)), axis=1)

    return evaluate


def evidence_of_log_gammas(shapes, mixing):
    shapes = np.asarray(shapes, dtype=float)
    totals = gammaln(shapes) - shapes * np.log(shapes)
    return totals.sum() - np.linalg.slogdet(np.asarray(mixing, dtype=float))[1]


def schools(points):
    """The log standard deviation of eight groups, half-Cauchy(5), their mean integrated out."""
    scale = np.exp(points[:, :1])
    precision = 1 / (ERRORS**2 + scale**2)
    mean = (SCHOOLS * precision).sum(axis=1, keepdims=True) / precision.sum(axis=1, keepdims=True)
    fit = 0.5 * np.log(precision).sum(axis=1) - 0.5 * np.log(precision.sum(axis=1))
    misfit = 0.5 * ((SCHOOLS - mean) ** 2 * precision).sum(axis=1)
    return fit - misfit - np.log1p((scale[:, 0] / 5) ** 2) + points[:, 0]


def two_scales(points):
    """Log standard deviations between and within six groups of three, balanced."""
    between, within = np.exp(2 * points).T
    total = within + 3 * between
    fit = 12 * np.log(within) + 10 / within + 5 * np.log(total) + 7 / total
    return -0.5 * (fit + between + within) + points.sum(axis=1)


def banana(points):
    x, y = points.T
    return -0.5 * (x**2 + (y - 0.25 * x**2) ** 2 / 0.25)


def two_modes(points):
    """Seven standard deviations apart, the second lower."""
    first, second = ((points[:, 0] + 2) / 0.5) ** 2, ((points[:, 0] - 2) / 0.5) ** 2
    rest = ((points[:, 1:] - points[:, :1]) ** 2).sum(axis=1)
    return np.logaddexp(-0.5 * first, -1 - 0.5 * second) - 0.5 * rest


def by_quadrature(evaluate, low, high, count):
    """Evidence, and for each coordinate points and densities, on a fine lattice over a box."""
    levels = [np.linspace(*ends, count) for ends in zip(low, high, strict=True)]
    mesh = np.stack([part.ravel() for part in np.meshgrid(*levels, indexing="ij")], axis=1)
    values = evaluate(mesh).reshape((count,) * len(levels))
    total, axes = logsumexp(values), range(len(levels))
    spacings = [level[1] - level[0] for level in levels]
    marginals = [
        np.exp(values - total).sum(axis=tuple(other for other in axes if other != k)) / spacings[k]
        for k in axes
    ]
    return total + np.sum(np.log(spacings)), list(zip(levels, marginals, strict=True))


def total_variation(table, points, density):
    """Half the integral of the difference of a table and a density at fine points."""
    values = np.exp(np.interp(points, *table, left=-np.inf, right=-np.inf))
    return 0.5 * np.trapezoid(np.abs(values - density), points)
