"""Chains as dense Normals, by NumPy."""

import numpy as np
import scipy.linalg


def correlations(size, rho):
    """One on the diagonal, ρ beside it."""
    return np.eye(size) + rho * (np.eye(size, k=1) + np.eye(size, k=-1))


def covariance(scale, rho):
    """Of a chain with signed scales."""
    return np.outer(scale, scale) * correlations(len(scale), rho)


def draws(mean, scale, rho, count, random):
    """Of a chain, [count, n], by the Cholesky factor, which has two diagonals."""
    bands = np.array([[1.0], [rho]]) * np.ones(len(mean))
    diagonal, below = scipy.linalg.cholesky_banded(bands, lower=True)
    noise = random.normal(size=(count, len(mean)))
    chain = diagonal * noise
    chain[:, 1:] += below[:-1] * noise[:, :-1]
    return mean + scale * chain


def log_density(value, mean, covariance):
    """Of a Normal."""
    deviation = value - mean
    quadratic = deviation @ np.linalg.solve(covariance, deviation)
    return -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1])
