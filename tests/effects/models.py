"""A model of each effect in both hosts, with its data."""

from dataclasses import dataclass

import numpy as np

TIMES, ROWS, SIDE = 24, 40, 4
rng = np.random.default_rng(1)
X = np.sort(rng.uniform(0.0, 10.0, ROWS))
CURVE = np.sin(X) + 0.3 * rng.normal(size=ROWS)
SERIES = rng.poisson(np.exp(1.0 + np.sin(np.arange(TIMES) / 4))).astype(float)
CASES = rng.poisson(np.exp(1.0 + 0.5 * rng.normal(size=SIDE**2))).astype(float)
OUTER, INNER = rng.integers(0, 6, ROWS), rng.integers(0, 4, ROWS)
COUNTS = rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=6)[OUTER])).astype(float)
NUMBER = np.arange(SIDE**2).reshape(SIDE, SIDE)
EDGES = np.concatenate(
    [
        np.stack([NUMBER[:, :-1].ravel(), NUMBER[:, 1:].ravel()], 1),
        np.stack([NUMBER[:-1].ravel(), NUMBER[1:].ravel()], 1),
    ]
)


@dataclass(frozen=True)
class Model:
    """An effect by its host, the scale of others, and a number of what is observed."""

    effect: object  # by the host and a function that samples a positive site
    data: np.ndarray
    is_counted: bool = True

    def of(self, host):
        """The model in a host."""
        dist, sample = host.dist, host.language.sample
        positive = lambda name: sample(name, dist.HalfNormal(1.0))  # noqa: E731

        def model(y):
            level = sample("level", dist.Normal(0.0, 2.0))
            eta = level + self.effect(host, positive)
            fn = dist.Poisson(host.np.exp(eta)) if self.is_counted else dist.Normal(eta, 0.3)
            with host.language.plate("rows", len(y)):
                sample("y", fn, obs=y)

        return model, host.array(self.data)


def share(host):
    return host.language.sample("share", host.dist.Uniform(0.0, 1.0))


def length(host):
    return host.language.sample("length", host.dist.LogNormal(0.5, 0.5))


def walk(order):
    def effect(host, positive):
        return host.package.effects.random_walk("walk", positive("scale"), TIMES, order)

    return effect


def autoregressive(host, positive):
    return host.package.effects.autoregressive("series", positive("scale"), share(host), TIMES)


def neighbours(host, positive):
    return host.package.effects.neighbours("places", positive("scale"), EDGES, SIDE**2)


def bym2(host, positive):
    return host.package.effects.bym2("places", positive("scale"), share(host), EDGES, SIDE**2)


def process(kernel):
    def effect(host, positive):
        of_kernel = host.package.effects.hilbert_space
        return of_kernel("curve", X, positive("height"), length(host), 12, kernel=kernel)

    return effect


def crossed(centred):
    def effect(host, positive):
        groups = host.package.effects.groups
        outer = groups("outer", positive("of outer"), OUTER, 6, centred)
        return outer + groups("inner", positive("of inner"), INNER, 4, centred)

    return effect


def spline(host, positive):
    return host.package.effects.spline("curve", X, positive("scale"), 12)


MODELS = {
    "random walk": Model(walk(1), SERIES),
    "random walk of order 2": Model(walk(2), SERIES),
    "autoregression": Model(autoregressive, SERIES),
    "neighbours": Model(neighbours, CASES),
    "BYM2": Model(bym2, CASES),
    "squared exponential": Model(process("squared exponential"), CURVE, False),
    "matern 3/2": Model(process("matern 3/2"), CURVE, False),
    "crossed groups": Model(crossed(False), COUNTS),
    "centred groups": Model(crossed(True), COUNTS),
    "spline": Model(spline, CURVE, False),
}
