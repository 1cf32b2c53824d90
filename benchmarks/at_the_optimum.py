"""Objectives at the optimum that they lead to: the loss as stated, and by 10⁴ draws.

The defaults in both covariances at every likelihood and depth, in both hosts, and every guide ×
objective × likelihood once, in the host, covariance and depth that cover the most triples of values
(and every pair), trained by L-BFGS on 64 rows of scikit-learn's diabetes data, by two processes.

    python benchmarks/at_the_optimum.py          # writes docs/at_the_optimum.md
    python benchmarks/at_the_optimum.py --check  # fails where a cell is off and no exception
"""

import itertools
from collections import namedtuple

import optimum

PARTICLES, TOGETHER, HIDDEN = 10_000, 400, 10
OFF, ERRORS = 0.02, 3.0  # relative difference, and standard errors, that a cell may have
HEADER = """# Losses at the optimum

What an objective states where training has led, beside 10⁴ draws of the same objective, for every
guide × objective × likelihood and every pair of host, guide, covariance, objective, likelihood and
number of hidden layers (ten relu units each, 64 rows); the defaults at every covariance, likelihood
and depth in both hosts, from the same start. A cell is off where the difference exceeds 2 % and
three standard errors; the last column says why. `fit` makes the same comparison by fewer draws at
its end, and the column before shows whether it warned. Written by
`python benchmarks/at_the_optimum.py`.

"""
COLUMNS = "host guide covariance objective likelihood layers stated drawn by warning why".split()
Cell = namedtuple("Cell", COLUMNS[:6])
GUIDES = {"DVIGuide": {}, "TridiagonalGuide": {}, "MCDropoutGuide": {"p": 0.1}}
OBJECTIVES = {"ELBO": {}, "BB-α 0.1": {"alpha": 0.1}, "BB-α 0.5": {"alpha": 0.5}}
OBJECTIVES |= {"BB-α 1": {"alpha": 1.0}}
FAMILIES = "Normal heteroscedastic StudentT Bernoulli Categorical ordinal Poisson Gamma".split()
AXES = (("pyro", "numpyro"), GUIDES, ("full", "diagonal"), OBJECTIVES, FAMILIES, (1, 2, 3))
TIES = "diagonal covariance drops what ties hidden units in depth"
TAILS = "three layers pass on what is no Gaussian, and powers weigh its tails"
MASKS = "sums of few masked inputs are no Gaussians, and powers weigh their tails"
EXCEPTIONS = {
    Cell("pyro", "DVIGuide", "diagonal", "ELBO", "Normal", 3): TIES,
    Cell("numpyro", "DVIGuide", "diagonal", "ELBO", "Normal", 3): TIES,
    Cell("numpyro", "DVIGuide", "full", "BB-α 0.5", "Normal", 3): TAILS,
    Cell("pyro", "MCDropoutGuide", "diagonal", "BB-α 1", "Normal", 2): MASKS,
    Cell("pyro", "MCDropoutGuide", "full", "BB-α 1", "StudentT", 1): MASKS,
}


def cells():
    """The defaults, and a cell for each other guide, objective and likelihood."""
    everything = [Cell(*values) for values in itertools.product(*AXES)]
    chosen = [cell for cell in everything if cell[1:5:2] == ("DVIGuide", "ELBO")]
    covered = set().union(*map(_triples, chosen))
    key = lambda cell: (cell.guide, cell.objective, cell.likelihood)  # noqa: E731
    done = set(map(key, chosen))
    for _, alike in itertools.groupby(sorted(everything, key=key), key):
        options = list(alike)
        if key(options[0]) not in done:
            chosen.append(max(options, key=lambda cell: len(_triples(cell) - covered)))
            covered |= _triples(chosen[-1])
    return chosen


def _triples(cell):
    return set(itertools.combinations(enumerate(cell), 3))


def measured(cell):
    """The loss as stated, by draws with its standard error, and what the user is told."""
    options, sizes = OBJECTIVES[cell.objective], optimum.sizes(HIDDEN, cell.layers, cell.likelihood)

    def prepared(host):
        model = optimum.network(host, None, sizes, cell.likelihood)
        start = optimum.start(host, sizes)
        guide = getattr(host.package, cell.guide)(init_loc_fn=start, **GUIDES[cell.guide])
        kind = host.package.BBAlphaELBO if options else host.package.DeterministicELBO
        data = tuple(map(host.array, optimum.data(cell.likelihood)))
        return model, guide, kind(covariance=cell.covariance, **options), data

    drawn, _, words = optimum.beside_draws(cell.host, prepared, PARTICLES, TOGETHER)
    return drawn.loss, drawn.value, drawn.standard_error, words


def is_off(found):
    """Whether the difference exceeds the limits."""
    stated, drawn, error, _ = found
    return abs(stated - drawn) > max(OFF * abs(drawn), ERRORS * error)


def row(cell, found):
    """A row of the table."""
    stated, drawn, error, words = found
    why = EXCEPTIONS.get(cell, "off") if is_off(found) else ""
    share = f"{100 * (stated - drawn) / abs(drawn):+.1f} %"
    return [*cell, f"{stated:.2f}", f"{drawn:.2f} ± {error:.2f}", share, words, why]


def unknown(results):
    """What is off and no exception."""
    return {cell for cell, found in results.items() if is_off(found)} - set(EXCEPTIONS)


if __name__ == "__main__":
    page = "at_the_optimum"
    optimum.write(__doc__, page, cells(), COLUMNS, measured, row, lambda _: HEADER, unknown)
