"""Layers, inputs, priors and objectives beyond perceptrons of relus, at their optimum.

Each cell is a small network with one hidden layer (unless its name says more), trained by L-BFGS on
64 rows of scikit-learn's diabetes data: the loss as stated, by 10⁵ draws, and what `fit` said.

    python benchmarks/layers_at_the_optimum.py          # writes docs/layers_at_the_optimum.md
    python benchmarks/layers_at_the_optimum.py --check  # fails where fit agrees and draws do not
"""

import itertools
from collections import namedtuple
from functools import partial

import harness
import numpy as np
import optimum
from models import observed, scaled

from moment_calculus.errors import UnsupportedMoments
from moment_inference.optimisation.outcome import AGREES, LARGEST_TAIL

PARTICLES, TOGETHER = 100_000, 512
OFF, ERRORS = 0.01, 3.0  # share of E log p, and standard errors, that a cell may have
HIDDEN, NOISE, MISSING = 8, 0.5, 0.2
HEADER = """# Layers at the optimum

What an objective states where training has led, beside 10⁵ draws of the guide: networks of one
hidden layer with eight units (more layers where the name says so), 64 rows, in both hosts. The
difference is a share of E log p of the data. «no mean» marks draws whose tail has none by its
Pareto shape k̂; the last column is the answer of `fit`, by its own draws. Written by
`python benchmarks/layers_at_the_optimum.py`.

"""
COLUMNS = "host network likelihood inputs guide objective stated drawn by answer".split()
MEAN_FIELD, ELBO = "DVIGuide", "ELBO"
Cell = namedtuple("Cell", COLUMNS[:6], defaults=["certain", MEAN_FIELD, ELBO])
FAMILIES = "Normal", "heteroscedastic", "Bernoulli", "Poisson"
BACKWARD = {"steps, 3 layers", "attention", "encoder layer", "RNN", "LSTM", "GRU"}
OBJECTIVES = {
    "ELBO": {},
    "BB-α ½": {"alpha": 0.5},
    "BB-α 1": {"alpha": 1.0},
    "ELBO by VBP's rules": {"rules": "vbp", "covariance": "diagonal"},
}


def cells():
    """All layers, then uncertain and missing inputs, other guides, priors and objectives."""
    rows = [*itertools.product((*ACTIVATIONS, *SEQUENCES), FAMILIES[:2])]
    rows += [*itertools.product(["relu", "horseshoe"], FAMILIES)]
    rows += itertools.product(["relu"], FAMILIES, ["uncertain", "missing"])
    rows += itertools.product(["relu"], FAMILIES, ["certain"], ["MCDropoutGuide"])
    powers = list(OBJECTIVES)[1:]
    rows += itertools.product(["relu", "steps"], FAMILIES, ["certain"], [MEAN_FIELD], powers)
    rows += itertools.product(["relu"], FAMILIES, ["uncertain"], [MEAN_FIELD], powers[:2])
    return [Cell(host, *row) for host in harness.VERSIONS for row in dict.fromkeys(rows)]


def measured(cell):
    """What draws say of the loss as stated, and what `fit` says; or why a cell is refused."""
    options = {"method": "adam", "steps": 2000} if "VBP" in cell.objective else {}
    prepared = partial(program, cell)
    try:
        return optimum.beside_draws(cell.host, prepared, PARTICLES, TOGETHER, **options)[:2]
    except UnsupportedMoments as error:
        return error.cause


def program(cell, host):
    """The model, the guide, the objective and the data of a cell."""
    options = dict(OBJECTIVES[cell.objective])
    if cell.network in BACKWARD or cell.inputs != "certain":
        options.setdefault("covariance", "backward")
    kind = host.package.BBAlphaELBO if "alpha" in options else host.package.DeterministicELBO
    guide = getattr(host.package, cell.guide)(**({"p": 0.1} if "Dropout" in cell.guide else {}))
    if cell.network in SEQUENCES:
        outputs = partial(of_sequence, host, SEQUENCES[cell.network], cell.likelihood)
        model = observed(host, outputs, cell.likelihood)
    else:
        activation, depth = ACTIVATIONS.get(cell.network, ACTIVATIONS["relu"])
        prior = partial(horseshoe, host) if cell.network == "horseshoe" else None
        sizes = optimum.sizes(HIDDEN, depth, cell.likelihood)
        model = optimum.network(host, prior, sizes, cell.likelihood, partial(activation, host))
    return model, guide, kind(**options), data(host, cell)


def horseshoe(host, shape):
    """A horseshoe prior of weights, and a normal one of biases."""
    if len(shape) == 1:
        return scaled(host)(shape)
    return host.package.Horseshoe(0.1).expand(list(shape)).to_event(len(shape))


def data(host, cell):
    """Inputs that are certain, measured with noise or partly missing, and the target."""
    x, y = optimum.data(cell.likelihood)
    random, moments = np.random.default_rng(0), host.package.Moments
    if cell.inputs == "uncertain":
        share = np.float32(1 / (1 + NOISE**2))
        variance = np.full_like(x, NOISE**2 * share)
        noisy = (x + NOISE * random.normal(size=x.shape)).astype(np.float32)
        return moments(host.array(share * noisy), variance=host.array(variance)), host.array(y)
    if cell.inputs == "missing":
        holes = np.where(random.random(x.shape) < MISSING, np.nan, x).astype(np.float32)
        return moments.missing(host.array(holes)), host.array(y)
    return host.array(x), host.array(y)


ACTIVATIONS = {  # of perceptrons, with their depth
    "relu": (lambda host, x: host.relu(x), 1),
    "tanh": (lambda host, x: host.np.tanh(x), 1),
    "gelu": (lambda host, x: host.gelu(x), 1),
    "steps": (lambda host, x: 1.0 * (x > 0), 1),
    "steps, 3 layers": (lambda host, x: 1.0 * (x > 0), 3),
    "softmax": (lambda host, x: HIDDEN * host.softmax(x), 1),
    "LayerNorm": (lambda host, x: host.relu(host.standardise(x)), 1),
    "LayerNorm, 2 layers": (lambda host, x: host.relu(host.standardise(x)), 2),
}


def weight(host, name, *shape):
    """A weight with the prior of these networks."""
    return host.sample(name, scaled(host)(shape))


def of_sequence(host, summary, family, x):
    """A network of a sequence's summary; the inputs are its values, each with its place."""
    mapped = x[..., None] @ weight(host, "value", 1, HIDDEN)
    hidden = mapped + weight(host, "place", optimum.INPUTS, HIDDEN)
    return summary(host, hidden) @ weight(host, "last", HIDDEN, optimum.OUTPUTS.get(family, 1))


def attention(host, hidden):
    """Attention over a sequence, as textbooks write it."""
    query, key, value = (hidden @ weight(host, name, HIDDEN, HIDDEN) for name in "qkv")
    scores = query @ host.np.swapaxes(key, -1, -2) / HIDDEN**0.5
    return host.softmax(scores) @ value


def encoded(host, hidden):
    """The mean of a sequence after a layer of an encoder: attention and units, both normalised."""
    hidden = host.standardise(hidden + attention(host, hidden))
    units = host.relu(hidden @ weight(host, "in", HIDDEN, HIDDEN))
    return host.standardise(hidden + units @ weight(host, "out", HIDDEN, HIDDEN)).mean(-2)


def recurrent(host, hidden):
    """The last state of a plain recurrent network."""
    state, again = 0.0 * hidden[..., 0, :], weight(host, "again", HIDDEN, HIDDEN)
    for step in range(optimum.INPUTS):
        state = host.np.tanh(hidden[..., step, :] + state @ again)
    return state


def gates(host, hidden, count):
    """What a sequence and a state give to each of so many gates, and a state of zeros."""
    mapped = hidden @ weight(host, "gates", HIDDEN, count * HIDDEN)
    return mapped, weight(host, "again", HIDDEN, count * HIDDEN), 0.0 * mapped[..., 0, :HIDDEN]


def split(gate, count):
    """The parts of gates."""
    return [gate[..., k * HIDDEN : (k + 1) * HIDDEN] for k in range(count)]


def lstm(host, hidden):
    """The last output of long short-term memory."""
    mapped, again, memory = gates(host, hidden, 4)
    output = memory
    for step in range(optimum.INPUTS):
        i, f, g, o = split(mapped[..., step, :] + output @ again, 4)
        memory = host.sigmoid(f) * memory + host.sigmoid(i) * host.np.tanh(g)
        output = host.sigmoid(o) * host.np.tanh(memory)
    return output


def gru(host, hidden):
    """The last state of gated recurrent units."""
    mapped, again, state = gates(host, hidden, 3)
    for step in range(optimum.INPUTS):
        r, z, n = split(mapped[..., step, :], 3)
        s, y, m = split(state @ again, 3)
        z = host.sigmoid(z + y)
        state = (1 - z) * host.np.tanh(n + host.sigmoid(r + s) * m) + z * state
    return state


SEQUENCES = {
    "attention": lambda host, hidden: attention(host, hidden).mean(-2),
    "encoder layer": encoded,
    "RNN": recurrent,
    "LSTM": lstm,
    "GRU": gru,
}


def share(drawn):
    """The difference of a loss from its draws, as a share of E log p."""
    return (drawn.loss - drawn.value) / abs(drawn.log_likelihood)


def is_off(drawn):
    """Whether the difference, as it is printed, exceeds the limits, or draws have no mean."""
    surely = ERRORS * drawn.standard_error / abs(drawn.log_likelihood)
    return abs(round(share(drawn), 3)) > max(OFF, surely) or drawn.tail >= LARGEST_TAIL


def row(cell, found):
    """A row of the table."""
    if isinstance(found, str):
        return [*cell, "", "", "", f"refused: {found}"]
    drawn, answer = found
    by = "no mean" if drawn.tail >= LARGEST_TAIL else f"{100 * share(drawn):+.1f} %"
    figures = f"{drawn.loss:.2f}", f"{drawn.value:.2f} ± {drawn.standard_error:.2f}"
    return [*cell, *figures, by, answer]


def silent(results):
    """The cells that are off, and that `fit` confirms."""
    known = [(cell, *found) for cell, found in results.items() if not isinstance(found, str)]
    return [cell for cell, drawn, answer in known if is_off(drawn) and answer == AGREES]


def summary(results):
    """How many cells are off, and what `fit` says of them and of the others."""
    known = [found for found in results.values() if not isinstance(found, str)]
    right = [answer for drawn, answer in known if not is_off(drawn)]
    off, agreed = len(known) - len(right), right.count(AGREES)
    return (
        f"{HEADER}{off} of {len(known)} cells are off by more than {OFF:.0%} of E log p; `fit` "
        f"confirms {len(silent(results))} of them. Of the {len(right)} others it confirms "
        f"{agreed}.\n\n"
    )


if __name__ == "__main__":
    page = "layers_at_the_optimum"
    optimum.write(__doc__, page, cells(), COLUMNS, measured, row, summary, silent)
