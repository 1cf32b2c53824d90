"""Standard deviations of networks by width and depth, by three covariances, against 10⁵ draws.

    python benchmarks/backward_widths.py [--host numpyro] [--out FILE]

Networks 13-d-…-d-2 with He's random weights as means, and a standard deviation of each weight that
is 0.3 of the spread of the means. What is shown is the geometric mean, over both outputs and four
inputs, of the standard deviation by each covariance over the drawn one.
"""

import itertools

import harness
import moments
import numpy as np

WIDTHS, DEPTHS, ROWS, SHARE = (50, 200, 800), (2, 3, 4, 6), 4, 0.3
DRAWS, TOGETHER = 100_000, 10_000
FUNCTIONS = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --only --out")
    harness.run(options, rows, failures=lambda rows: [])


def rows(host, options):
    for width, depth, activation in itertools.product(WIDTHS, DEPTHS, FUNCTIONS):
        if options.only in f"{width} {depth} {activation}":
            yield measured(host, width, depth, activation)


def measured(host, width, depth, activation):
    generator, layers = np.random.default_rng(0), []
    inputs = generator.normal(size=(ROWS, 13)).astype(np.float32)
    for shape in itertools.pairwise((13, *[width] * depth, 2)):
        spread = ((2.0 if activation == "relu" else 1.0) / shape[0]) ** 0.5
        mean = (spread * generator.normal(size=shape)).astype(np.float32)
        layers.append((mean, np.float32(SHARE * spread)))

    def network(weights):
        value = host.array(inputs)
        for place, weight in enumerate(weights):
            value = (host.activation(activation)(value) if place else value) @ weight
        return value

    drawn = by_draws(inputs, layers, FUNCTIONS[activation])
    weights = moments.random(host, *zip(*layers, strict=True))
    row = {"width": width, "depth": depth, "activation": activation}
    for covariance in ("diagonal", "backward", "full"):
        found = host.package.propagate(network, weights, covariance=covariance)
        row[covariance] = moments.ratio(found, drawn)
    return row


def by_draws(inputs, layers, function):
    """Deviations of the outputs; of one input the units of a layer are independent, given the last.

    This draws the units, of Gaussians whose moments the units before give, in place of the weights.
    """
    generator, deviations = np.random.default_rng(1), []

    def one_part(row):
        value = np.broadcast_to(row, (TOGETHER, len(row)))
        for place, (mean, scale) in enumerate(layers):
            value = function(value) if place else value
            noise = generator.standard_normal((TOGETHER, mean.shape[1]), dtype=np.float32)
            size = np.sqrt(np.sum(value * value, axis=1, keepdims=True))
            value = value @ mean + scale * size * noise
        return value

    for row in inputs:
        parts = (one_part(row) for _ in range(DRAWS // TOGETHER))
        deviations.append(moments.of_draws(parts)[1])
    return np.array(deviations)


if __name__ == "__main__":
    main()
