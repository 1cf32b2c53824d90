"""Series, curves and maps for nested inference, as the hierarchies of `nested_groups`."""

import numpy as np
from covariances_models import observed, random
from models import standard
from nested_groups import HIERARCHIES, Case


def autoregressive_counts(steps=150):
    """Counts whose log rate is a stationary AR(1) series, by its tridiagonal precision."""
    generator = random(3)
    path = np.zeros(steps)
    path[0] = 0.5 * generator.normal() / 0.6
    for time in range(1, steps):
        path[time] = 0.8 * path[time - 1] + 0.5 * generator.normal()
    y = generator.poisson(np.exp(0.7 + path)).astype(float)

    def make(host):
        dist = host.dist

        def model(inner, neighbours, y):
            mean = host.sample("mean", dist.Normal(0.0, 2.0))
            step = host.sample("step", dist.HalfNormal(1.0))
            kept = host.sample("kept", dist.Uniform(-1.0, 1.0))
            precision = host.np.eye(steps) + kept**2 * inner - kept * neighbours
            zeros = host.np.zeros(steps)
            prior = dist.MultivariateNormal(zeros, precision_matrix=precision / step**2)
            path = host.sample("path", prior)
            observed(host, dist.Poisson(host.np.exp(mean + path)), y)

        return model

    inner = np.diag(np.r_[0.0, np.ones(steps - 2), 0.0])
    neighbours = np.eye(steps, k=1) + np.eye(steps, k=-1)
    elements = {"mean": (), "path": (0, 75, 149)}
    return Case(make, (inner, neighbours, y), ("step", "kept"), elements)


def walk_of_levels(steps=100):
    """A random walk seen with noise, by its standardised steps."""
    generator = random(32)
    y = np.cumsum(0.3 * generator.normal(size=steps)) + 0.6 * generator.normal(size=steps)

    def make(host):
        dist = host.dist

        def model(y):
            first = host.sample("first", dist.Normal(0.0, 2.0))
            step = host.sample("step", dist.HalfNormal(1.0))
            noise = host.sample("noise", dist.HalfNormal(1.0))
            z = host.sample("z", standard(host)([steps]))
            observed(host, dist.Normal(first + host.np.cumsum(step * z, -1), noise), y)

        return model

    return Case(make, (y,), ("step", "noise"), {"first": (), "z": (0, 50, 99)})


def walk_of_counts(steps=100):
    """Counts whose log rate is a random walk, by its steps."""
    generator = random(33)
    y = generator.poisson(np.exp(0.8 + np.cumsum(0.2 * generator.normal(size=steps))))

    def make(host):
        dist = host.dist

        def model(y):
            first = host.sample("first", dist.Normal(0.0, 2.0))
            step = host.sample("step", dist.HalfNormal(1.0))
            prior = dist.Normal(0.0, step).expand([steps]).to_event(1)
            path = first + host.np.cumsum(host.sample("moves", prior), -1)
            observed(host, dist.Poisson(host.np.exp(path)), y)

        return model

    return Case(make, (y.astype(float),), ("step",), {"first": (), "moves": (0, 50, 99)})


def hilbert_space_counts(points=120, functions=20):
    """Counts by a Gaussian process in its Hilbert-space basis, whose height and length are
    unknown."""
    generator = random(34)
    x, edge = np.linspace(-1, 1, points), 1.5
    frequencies = np.pi / (2 * edge) * np.arange(1, functions + 1)
    basis = np.sin(frequencies * (x[:, None] + edge)) / np.sqrt(edge)
    y = generator.poisson(np.exp(0.3 + 0.8 * np.sin(5 * x))).astype(float)

    def make(host):
        dist = host.dist

        def model(basis, squares, y):
            mean = host.sample("mean", dist.Normal(0.0, 2.0))
            height = host.sample("height", dist.HalfNormal(1.0))
            length = host.sample("length", dist.LogNormal(-1.0, 0.5))
            z = host.sample("z", standard(host)([functions]))
            decay = host.np.exp(-0.25 * squares * length**2)
            weights = height * (2 * np.pi) ** 0.25 * length**0.5 * decay * z
            observed(host, dist.Poisson(host.np.exp(mean + basis @ weights)), y)

        return model

    elements = {"mean": (), "z": (0, 1, 4)}
    return Case(make, (basis, frequencies**2, y), ("height", "length"), elements)


def disease_map(side=10):
    """Cases on a map by BYM2: the share of neighbours in the spread of places is unknown.

    The differences of neighbours are a factor without a constant; the sum is soft, as in Stan's
    study of the model.
    """
    places = side**2
    number = np.arange(places).reshape(side, side)
    first = np.r_[number[:, :-1].ravel(), number[:-1].ravel()]
    second = np.r_[number[:, 1:].ravel(), number[1:].ravel()]
    laplacian = np.zeros((places, places))
    for one, other in zip(first, second, strict=True):
        laplacian[[one, other], [one, other]] += 1
        laplacian[[one, other], [other, one]] -= 1
    covariance = np.linalg.pinv(laplacian, hermitian=True)
    unit = np.exp(np.log(np.diag(covariance)).mean()) ** -0.5  # makes neighbours' spread one
    generator = random(35)
    values, vectors = np.linalg.eigh(covariance)
    structured = vectors @ (np.sqrt(np.maximum(values, 0)) * generator.normal(size=places))
    expected = generator.uniform(2.0, 8.0, size=places)
    field = np.sqrt(0.3) * generator.normal(size=places) + np.sqrt(0.7) * unit * structured
    y = generator.poisson(expected * np.exp(0.1 + 0.6 * field)).astype(float)

    def make(host):
        dist = host.dist

        def model(first, second, expected, y):
            mean = host.sample("mean", dist.Normal(0.0, 2.0))
            spread = host.sample("spread", dist.HalfNormal(1.0))
            share = host.sample("share", dist.Uniform(0.0, 1.0))
            own = host.sample("own", standard(host)([places]))
            flat = dist.ImproperUniform(dist.constraints.real_vector, (), (places,))
            near = host.sample("near", flat)
            difference = near[first] - near[second]
            host.factor("neighbours", -0.5 * (difference**2).sum())
            host.factor("sum", dist.Normal(0.0, 0.001 * places).log_prob(near.sum()))
            field = host.np.sqrt(1 - share) * own + host.np.sqrt(share) * unit * near
            observed(host, dist.Poisson(expected * host.np.exp(mean + spread * field)), y)

        return model

    elements = {"mean": (), "near": (0, 44, 99), "own": (44,)}
    return Case(make, (first, second, expected, y), ("spread", "share"), elements)


FIELDS = {
    "AR(1) counts, 150 steps": autoregressive_counts,
    "walk of levels, 100 steps": walk_of_levels,
    "walk of counts, 100 steps": walk_of_counts,
    "HSGP counts": hilbert_space_counts,
    "BYM2, 10 × 10": disease_map,
}
MODELS = HIERARCHIES | FIELDS
