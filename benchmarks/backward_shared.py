"""Standard deviations of programs that use a weight more than once, against 10⁵ draws.

    python benchmarks/backward_shared.py [--host numpyro] [--check] [--out FILE]

Three hidden layers with one weight matrix, a recurrent cell over 20 steps, and a network at ten
positions whose mean is taken, with weights of standard deviation 0.02 and 0.1. What is shown is the
geometric mean, over the outputs, of the standard deviation by diagonal and by backward covariance
over the drawn one. Diagonal covariance takes the uses of a weight as independent.
"""

import harness
import moments
import numpy as np

ROWS, UNITS, OUTPUTS, STEPS, POSITIONS = 8, 20, 2, 20, 10
DRAWS, TOGETHER = 100_000, 500
DEVIATIONS, ALLOWED = (0.02, 0.1), (0.95, 1.05)
INPUTS = np.random.default_rng(0).normal(size=(STEPS, ROWS, UNITS))


def tied(host, function, use):
    """Hidden layers with one weight matrix and one bias."""
    hidden = host.array(INPUTS[0])
    for layer in range(3):
        weight, bias = use(layer)
        hidden = function(hidden @ weight + bias)
    return hidden


def recurrent(host, function, use):
    """A cell over 20 steps."""
    state = function(host.array(0.5 * INPUTS[0]) + use(0)[1])
    for step, inputs in enumerate(INPUTS[1:], 1):
        weight, bias = use(step)
        state = function(host.array(0.5 * inputs) + (state @ weight + bias))
    return state


def pooled(host, function, use):
    """A network with one hidden layer at every position, and its mean over these."""
    value = host.array(INPUTS[:POSITIONS].swapaxes(0, 1))
    for layer in range(2):
        weight, bias = use(layer)
        value = function(value @ weight + bias)
    return value.mean(1)


CELL = "a cell over 20 steps"
CASES = (  # program, activation, and size of the weights: the state of the last cell grows
    ("three tied layers", tied, "tanh", 1.0),
    ("three tied layers", tied, "relu", 1.4),
    (CELL, recurrent, "tanh", 1.0),
    (CELL, recurrent, "relu", 0.7),
    (f"{CELL}, growing", recurrent, "relu", 1.4),
    ("ten positions, pooled", pooled, "tanh", 1.0),
    ("ten positions, pooled", pooled, "relu", 1.4),
)


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --check --only --out")
    harness.run(options, rows, failures=off)


def rows(host, options):
    with host.doubles():
        for name, *case in CASES:
            for deviation in DEVIATIONS if options.only in name else ():
                yield measured(host, name, *case, deviation)


def off(rows):
    """Programs whose deviation by backward covariance is not within the limits."""
    stable = (row for row in rows if "growing" not in row["program"])
    return [str(row) for row in stable if not ALLOWED[0] <= row["backward"] <= ALLOWED[1]]


def measured(host, name, program_of, activation, size, deviation):
    """A row: means of the weight matrix, the bias, and the weights of the outputs are random."""
    generator, function = np.random.default_rng(1), host.activation(activation)
    matrix = size * generator.normal(size=(UNITS, UNITS)) / UNITS**0.5
    means = matrix, 0.1 * generator.normal(size=UNITS), generator.normal(size=(UNITS, OUTPUTS))

    def program(weights, biases, last):
        """Of a weight and a bias for each use, or one for all."""

        def use(number):
            return weights[number % len(weights)], biases[number % len(biases)]

        return program_of(host, function, use) @ last

    _, drawn = moments.of_draws(by_draws(host, program, means, deviation))
    row = {"program": name, "activation": activation, "deviation": deviation}
    for covariance in ("diagonal", "backward"):
        *repeated, last = moments.random(host, means, [deviation] * 3)
        # under diagonal covariance uses of one weight are refused: those of copies instead
        copies = STEPS if covariance == "diagonal" else 1
        inputs = *([part] * copies for part in repeated), last
        found = host.package.propagate(program, *inputs, covariance=covariance)
        row[covariance] = moments.ratio(found, drawn)
    return row


def by_draws(host, program, means, deviation):
    """The outputs, many draws at a time."""
    generator = np.random.default_rng(2)
    run = host.over_draws(lambda weight, bias, last: program([weight], [bias], last))
    for _ in range(DRAWS // TOGETHER):
        noise = [deviation * generator.normal(size=(TOGETHER, *mean.shape)) for mean in means]
        yield run(*(host.array(mean + part) for mean, part in zip(means, noise, strict=True)))


if __name__ == "__main__":
    main()
