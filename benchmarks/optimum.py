"""Small networks at their optimum, the same in both hosts: data, fits beside draws, and pages."""

import itertools
import os
import sys
import warnings
from pathlib import Path

import harness
import numpy as np
from models import observed, perceptron, scaled
from sklearn.datasets import load_diabetes

from moment_inference.objectives.by_draws import Batch, Look

DOCS = Path(__file__).parent.parent / "docs"
ROWS, INPUTS, STEPS = 64, 4, 400
OUTPUTS = {"heteroscedastic": 2, "Categorical": 3}  # of a network, by likelihood; else one


def data(family):
    """Standardised inputs, and the target as the likelihood takes it."""
    inputs, target = load_diabetes(return_X_y=True)
    inputs, target = inputs[:ROWS, [2, 8, 3, 0]], target[:ROWS]
    classes = np.searchsorted(np.quantile(target, [1 / 3, 2 / 3]), target)
    x, standard = harness.standardised(inputs, target)
    targets = {
        "Bernoulli": standard > 0,
        "Categorical": classes,
        "ordinal": classes,
        "Poisson": np.round(target / 50),
        "Gamma": target / target.mean(),
    }
    y = targets.get(family, standard)
    return x.astype(np.float32), y.astype(np.int64 if y is classes else np.float32)


def sizes(units, depth, family):
    """Numbers of inputs, of units in each hidden layer, and of outputs."""
    return [INPUTS, *[units] * depth, OUTPUTS.get(family, 1)]


def network(host, prior, sizes, family, activation=None):
    """Hidden layers, of relus if no activation is named, and a likelihood."""
    outputs = lambda x: perceptron(host, prior or scaled(host), sizes, x, activation)  # noqa: E731
    return observed(host, outputs, family)


def start(host, sizes):
    """Locations that training begins at in both hosts (Glorot and Bengio 2010, eq. 12)."""
    rng, values = np.random.default_rng(0), {}
    for layer, shape in enumerate(itertools.pairwise(sizes)):
        values[f"weight{layer}"] = rng.normal(0.0, (2 / sum(shape)) ** 0.5, shape)
        values[f"bias{layer}"] = rng.normal(0.0, 0.5, shape[1:])
    values = {site: host.array(value.astype(np.float32)) for site, value in values.items()}
    return host.init_to_value(values=values)


def beside_draws(name, prepared, particles, together, **options):
    """What draws say of the loss of what is prepared in a host, model, guide, objective and data,
    where training has led; the fit's own answer; and what the user is warned of."""
    host = harness.load(name)
    host.forget()
    host.fresh()
    model, guide, objective, data = prepared(host)
    options = {"method": "lbfgs", "steps": STEPS, "progress_bar": False} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = host.package.fit(model, guide, *data, objective=objective, **options)
    count = particles // together
    terms = host.terms_by_draws(objective, model, fit, data, together, count)
    looks = [Look(part, objective.alpha) for part in terms]
    words = " ".join(sorted({warning.category.__name__ for warning in caught}))
    drawn = Batch((), fit.loss, objective.alpha, looks).result()
    return drawn, fit.by_draws.answer, words


def write(text, name, cells, columns, measured, row, summary, wrong):
    """Measure cells by two processes of one thread each and write their page; or check them.

    Args:
        text: the docstring of the script.
        name: of the page.
        cells: what is measured.
        columns: of the table.
        measured: what is found of a cell, in a process.
        row: the cells of the table, of both.
        summary: what stands before the table, of the results by cell.
        wrong: the cells that are not as they should be, of the same.
    """
    options = harness.parse(text, None, "--check --only")
    os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    chosen = [cell for cell in cells if options.only in " ".join(map(str, cell))]
    tasks, results = [(cell,) for cell in chosen], {}
    found = harness.in_processes(measured, tasks, workers=2, fresh=False)
    for cell, one in zip(chosen, found, strict=True):
        results[cell] = one
        print(*row(cell, one), sep=" | ", flush=True)
    if not options.check:
        table = harness.markdown(columns, itertools.starmap(row, results.items()))
        (DOCS / f"{name}.md").write_text(summary(results) + table, encoding="utf-8")
    elif off := wrong(results):
        sys.exit(f"off: {sorted(off)}")
