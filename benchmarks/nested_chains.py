"""Counts of an AR(1) series, given hyperparameters: forwards and backwards over a grid of the
predictor, under points of Gauss–Hermite of the mean, for `nested_references`.
"""

import nested_gaussians as gaussians
import numpy as np
from scipy.special import logsumexp

MEANS = 13  # points
REACH, SPACING = 8.0, 0.4  # in deviations of the Gaussian; in those of a step
ORDERS = 13  # of Hermite polynomials in the density of an element


def integrated(likelihood, step, kept, wide, found, elements):
    """Log evidence, and coefficients of densities of the mean and of parts of the path."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(MEANS)
    shares = shares / np.sqrt(2 * np.pi)
    means = found.mean[0] + found.deviations[0] * nodes
    grid = places(found, step)
    terms = likelihood.value(np.repeat(grid[:, None], len(found.mean) - 1, 1))  # [grid, time]
    moves = grid[:, None] - kept * grid - (1 - kept) * means[:, None, None]  # [means, to, from]
    transition = density(moves, step) * (grid[1] - grid[0])
    start = density(grid - means[:, None], step / np.sqrt(1 - kept**2)) * (grid[1] - grid[0])
    logs, forwards, backwards = passed(start, transition, terms)
    logs = logs + np.log(shares) + 0.5 * nodes**2 + np.log(found.deviations[0])
    logs = logs + np.log(density(means, wide)) + 0.5 * gaussians.UNIT
    weights = np.exp(logs - logsumexp(logs))
    shapes = []
    for place in elements:
        if place == 0:
            shapes.append(gaussians.polynomials(nodes, ORDERS) @ weights)
            continue
        mass = forwards[place - 1] * backwards[place - 1]
        mass = mass / mass.sum(1, keepdims=True) * weights[:, None]
        path = grid - means[:, None] - found.mean[place]
        parts = gaussians.polynomials(path / found.deviations[place], ORDERS)
        shapes.append((parts * mass).sum((1, 2)))
    return logsumexp(logs), np.array(shapes)


def places(found, step):
    """Points of a grid that has the predictor at all times."""
    size = len(found.mean)
    predictor = np.column_stack([np.ones(size - 1), np.eye(size - 1)])
    deviations = np.sqrt(((predictor @ found.covariance) * predictor).sum(1))
    centre = predictor @ found.mean
    low, high = (centre - REACH * deviations).min(), (centre + REACH * deviations).max()
    spacing = SPACING * min(step, deviations.min())
    return np.linspace(low, high, int((high - low) / spacing) + 2)


def density(distance, deviation):
    return np.exp(-0.5 * (distance / deviation) ** 2 - 0.5 * gaussians.UNIT) / deviation


def passed(start, transition, terms):
    """Log evidence by mean, and by time the scaled masses before and likelihoods after it."""
    highest = terms.max(0)
    likelihoods, now, logs = np.exp(terms - highest).T, start, highest.sum()
    forwards = []
    for time, likelihood in enumerate(likelihoods):
        if time:
            now = (transition @ now[..., None])[..., 0]
        now = now * likelihood
        total = now.sum(1, keepdims=True)
        now, logs = now / total, logs + np.log(total[:, 0])
        forwards.append(now)
    after, backwards = np.ones_like(start), [np.ones_like(start)]
    for likelihood in likelihoods[:0:-1]:
        after = ((after * likelihood)[:, None] @ transition)[:, 0]
        after = after / after.max(1, keepdims=True)
        backwards.append(after)
    return logs, forwards, backwards[::-1]
