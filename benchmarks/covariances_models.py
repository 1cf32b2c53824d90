"""Models whose latent sites lean on each other, each with its data: functions of a host.

A model is made by its host; its data are drawn in NumPy, by a seed of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from models import standard


@dataclass(frozen=True)
class Case:
    """A model of a host, its data, and what a chain of NUTS needs to mix in it."""

    make: Callable  # of a host
    data: tuple
    centred: tuple[str, ...] = ()  # sites that the reference draws not centred
    is_counted: bool = True  # among those that a Gaussian can hold
    accepted: float = 0.9  # of the proposals of the reference


def observed(host, fn, y):
    """The observations of a model."""
    with host.plate("data", len(y)):
        host.sample("obs", fn, obs=y)


def random(seed):
    return np.random.default_rng(seed)


def logistic(x):
    return 1 / (1 + np.exp(-x))


# ---------------------------------------------------------------------------------------------
# Series


def walk_of_counts(steps=30):
    generator = random(1)
    level = 0.3 + np.cumsum(0.15 * generator.normal(size=steps))
    counts = generator.poisson(20 * np.exp(level)).astype(float)

    def make(host):
        def model(y):
            level = host.sample("level", host.dist.Normal(0.0, 1.0))
            step = host.sample("step", host.dist.HalfNormal(0.5))
            z = host.sample("z", standard(host)([steps]))
            path = level + host.np.cumsum(step * z, -1)
            observed(host, host.dist.Poisson(20.0 * host.np.exp(path)), y)

        return model

    return Case(make, (counts,))


def local_level(steps=40):
    generator = random(2)
    level = np.cumsum(0.25 * generator.normal(size=steps))
    y = level + 0.5 * generator.normal(size=steps)

    def make(host):
        def model(y):
            first = host.sample("first", host.dist.Normal(0.0, 1.0))
            step = host.sample("step", host.dist.HalfNormal(1.0))
            noise = host.sample("noise", host.dist.HalfNormal(1.0))
            z = host.sample("z", standard(host)([steps]))
            observed(host, host.dist.Normal(first + host.np.cumsum(step * z, -1), noise), y)

        return model

    return Case(make, (y,))


def prophet_trend(points=80, changepoints=12):
    """A piecewise linear trend, whose slope changes by Laplace amounts, and a season."""
    generator = random(3)
    t = np.linspace(0, 1, points)
    places = np.linspace(0.05, 0.8, changepoints)
    ramps = np.maximum(t[:, None] - places, 0)
    season = np.column_stack([np.sin(2 * np.pi * 7 * t), np.cos(2 * np.pi * 7 * t)])
    y = 0.3 * t + 2.0 * ramps[:, 4] - 1.5 * ramps[:, 9] + 0.2 * season[:, 0]
    y = y + 0.15 * generator.normal(size=points)

    def make(host):
        def model(t, ramps, season, y):
            intercept = host.sample("intercept", host.dist.Normal(0.0, 1.0))
            slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
            changes = host.dist.Laplace(0.0, 0.5).expand([changepoints]).to_event(1)
            change = host.sample("change", changes)
            wave = host.sample("wave", standard(host)([2]))
            noise = host.sample("noise", host.dist.HalfNormal(0.5))
            trend = intercept + slope * t + ramps @ change
            observed(host, host.dist.Normal(trend + season @ wave, noise), y)

        return model

    return Case(make, (t, ramps, season, y))


def stochastic_volatility(steps=60):
    generator = random(4)
    level = -1.0 + np.cumsum(0.25 * generator.normal(size=steps))
    y = np.exp(level) * generator.normal(size=steps)

    def make(host):
        def model(y):
            step = host.sample("step", host.dist.Exponential(5.0))
            level = host.sample("level", host.dist.Normal(0.0, 2.0))
            z = host.sample("z", standard(host)([steps]))
            path = level + host.np.cumsum(step * z, -1)
            observed(host, host.dist.Normal(0.0, host.np.exp(path)), y)

        return model

    return Case(make, (y,))


def autoregressive_counts(steps=30):
    """Counts whose log rate is an AR(1) series, a site for each time."""
    generator = random(5)
    state, states = 0.0, []
    for _ in range(steps):
        state = 0.7 * state + 0.4 * generator.normal()
        states.append(state)
    counts = generator.poisson(np.exp(1.5 + np.array(states))).astype(float)

    def make(host):
        def model(y):
            mean = host.sample("mean", host.dist.Normal(1.0, 1.0))
            kept = host.sample("kept", host.dist.Normal(0.5, 0.3))
            step = host.sample("step", host.dist.HalfNormal(0.5))
            state = host.sample("state0", host.dist.Normal(0.0, 1.0))
            states = [state]
            for time in range(1, steps):
                state = host.sample(f"state{time}", host.dist.Normal(kept * state, step))
                states.append(state)
            path = mean + host.np.stack(states)
            observed(host, host.dist.Poisson(host.np.exp(path)), y)

        return model

    return Case(make, (counts,))


# ---------------------------------------------------------------------------------------------
# Curves


def gaussian_process_classifier(points=40):
    generator = random(6)
    x = np.sort(generator.uniform(-2, 2, points))
    covariance = np.exp(-2 * (x[:, None] - x) ** 2) + 1e-4 * np.eye(points)
    root = np.linalg.cholesky(covariance)
    y = (generator.random(points) < logistic(3 * np.sin(2 * x))).astype(float)

    def make(host):
        def model(root, y):
            amplitude = host.sample("amplitude", host.dist.HalfNormal(2.0))
            z = host.sample("z", standard(host)([points]))
            observed(host, host.dist.Bernoulli(logits=amplitude * (root @ z)), y)

        return model

    return Case(make, (root, y))


def hilbert_space_process(points=60, functions=15):
    """A Gaussian process by its Hilbert-space basis, with random amplitude and length."""
    generator = random(7)
    x = np.sort(generator.uniform(-1, 1, points))
    edge = 1.5
    frequencies = np.pi / (2 * edge) * np.arange(1, functions + 1)
    basis = np.sin(frequencies * (x[:, None] + edge)) / np.sqrt(edge)
    y = np.sin(4 * x) + 0.5 * x + 0.3 * generator.normal(size=points)

    def make(host):
        def model(basis, squares, y):
            amplitude = host.sample("amplitude", host.dist.HalfNormal(1.0))
            length = host.sample("length", host.dist.LogNormal(-1.0, 0.5))
            noise = host.sample("noise", host.dist.HalfNormal(0.5))
            z = host.sample("z", standard(host)([functions]))
            decay = host.np.exp(-0.25 * squares * length**2)
            weights = amplitude * (2 * np.pi) ** 0.25 * length**0.5 * decay * z
            observed(host, host.dist.Normal(basis @ weights, noise), y)

        return model

    return Case(make, (basis, frequencies**2, y))


def spline(points=60, knots=14):
    """A cubic B-spline, whose coefficients are a walk of random smoothness."""
    from scipy.interpolate import BSpline

    generator = random(8)
    x = np.sort(generator.uniform(0, 1, points))
    ends = np.concatenate([np.zeros(3), np.linspace(0, 1, knots - 2), np.ones(3)])
    basis = BSpline.design_matrix(x, ends, 3).toarray()
    y = np.sin(7 * x) + 0.3 * generator.normal(size=points)

    def make(host):
        def model(basis, y):
            first = host.sample("first", host.dist.Normal(0.0, 1.0))
            smoothness = host.sample("smoothness", host.dist.HalfNormal(1.0))
            noise = host.sample("noise", host.dist.HalfNormal(1.0))
            z = host.sample("z", standard(host)([knots]))
            coefficients = first + host.np.cumsum(smoothness * z, -1)
            observed(host, host.dist.Normal(basis @ coefficients, noise), y)

        return model

    assert basis.shape == (points, knots)
    return Case(make, (basis, y))


SERIES = {
    "walk of counts": walk_of_counts,
    "local level": local_level,
    "GP classifier": gaussian_process_classifier,
    "HSGP": hilbert_space_process,
    "Prophet trend": prophet_trend,
    "spline": spline,
    "stochastic volatility": stochastic_volatility,
    "AR(1) counts": autoregressive_counts,
}
