"""Layers, inputs, priors and objectives beyond perceptrons of relus, at their optimum.

Each cell is a small network with one hidden layer (unless its name says more), trained by L-BFGS on
64 rows of scikit-learn's diabetes data: the loss as stated, by 10⁵ draws, and what `fit` said.

    python benchmarks/layers_at_the_optimum.py          # writes docs/layers_at_the_optimum.md
    python benchmarks/layers_at_the_optimum.py --check  # fails where fit agrees and draws do not
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import hosts
import layers_at_the_optimum_models as models

from moment_calculus.errors import UnsupportedMoments
from moment_inference.objectives.by_draws import Batch, Look
from moment_inference.optimisation.outcome import AGREES, LARGEST_TAIL, ByDraws

STEPS, PARTICLES, TOGETHER = 400, 100_000, 512
OFF, ERRORS = 0.01, 3.0  # share of E log p, and standard errors, that a cell may have
PAGE = Path(__file__).parent.parent / "docs" / "layers_at_the_optimum.md"

HEADER = """# Layers at the optimum

What an objective states where training has led, beside 10⁵ draws of the guide: networks of one
hidden layer with eight units (more layers where the name says so), 64 rows, in both hosts. The
difference is a share of E log p of the data. «no mean» marks draws whose tail has none by its
Pareto shape k̂; the last column is the answer of `fit`, by its own draws. Written by
`python benchmarks/layers_at_the_optimum.py`.

"""
COLUMNS = "host network likelihood inputs guide objective stated drawn by answer".split()
MEAN_FIELD, ELBO = "DVIGuide", "ELBO"
FAMILIES = "Normal", "heteroscedastic", "Bernoulli", "Poisson"
BACKWARD = {"steps, 3 layers", "attention", "encoder layer", "RNN", "LSTM", "GRU"}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "ELBO": {},
    "BB-α ½": {"alpha": 0.5},
    "BB-α 1": {"alpha": 1.0},
    "ELBO by VBP's rules": {"rules": "vbp", "covariance": "diagonal"},
}


class Cell(NamedTuple):
    """One network with its inputs, guide and objective."""

    host: str
    network: str
    family: str
    inputs: str = "certain"
    guide: str = MEAN_FIELD
    objective: str = ELBO


def cells() -> list[Cell]:
    """All layers, then uncertain and missing inputs, other guides, priors and objectives."""
    rows = [*itertools.product(models.NETWORKS, FAMILIES[:2])]
    rows += [*itertools.product(["relu", "horseshoe"], FAMILIES)]
    rows += itertools.product(["relu"], FAMILIES, ["uncertain", "missing"])
    rows += itertools.product(["relu"], FAMILIES, ["certain"], ["MCDropoutGuide"])
    powers = list(OBJECTIVES)[1:]
    rows += itertools.product(["relu", "steps"], FAMILIES, ["certain"], [MEAN_FIELD], powers)
    rows += itertools.product(["relu"], FAMILIES, ["uncertain"], [MEAN_FIELD], powers[:2])
    return [Cell(host, *row) for host in hosts.VERSIONS for row in dict.fromkeys(rows)]


class Losses(NamedTuple):
    """A cell measured: the loss stated and by draws, what `fit` answers, and seconds."""

    drawn: ByDraws
    answer: str
    seconds: float

    @property
    def share(self) -> float:
        """The difference, as a share of E log p."""
        return (self.drawn.loss - self.drawn.value) / abs(self.drawn.log_likelihood)

    @property
    def is_off(self) -> bool:
        """Whether the difference, as it is printed, exceeds the limits, or draws have no mean."""
        surely = ERRORS * self.drawn.standard_error / abs(self.drawn.log_likelihood)
        return abs(round(self.share, 3)) > max(OFF, surely) or self.has_no_mean

    @property
    def has_no_mean(self) -> bool:
        """Whether the tail of the draws is that of a distribution without a mean."""
        return self.drawn.tail >= LARGEST_TAIL


def measured(cell: Cell) -> Losses | str:
    """The loss as stated, by draws, and what `fit` says of it; or why a cell is refused."""
    began, host = time.process_time(), hosts.load(cell.host)
    host.forget()
    host.fresh()
    data = models.data(host, cell.family, cell.inputs)
    model, guide, objective = prepared(host, cell)
    options = {"steps": 2000} if "VBP" in cell.objective else {"method": "lbfgs", "steps": STEPS}
    options |= {"objective": objective, "progress_bar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = host.package.fit(model, guide, *data, **options)
        except UnsupportedMoments as error:
            return error.cause
    times = PARTICLES // TOGETHER
    terms = host.terms_by_draws(objective, model, fit, data, TOGETHER, times)
    looks = [Look(part, objective.alpha) for part in terms]
    drawn = Batch(data, fit.loss, objective.alpha, looks).result()
    return Losses(drawn, fit.by_draws.answer, time.process_time() - began)


def prepared(host: Any, cell: Cell) -> tuple[Any, Any, Any]:
    """The model, the guide and the objective of a cell."""
    options = dict(OBJECTIVES[cell.objective])
    if cell.network in BACKWARD or cell.inputs != "certain":
        options.setdefault("covariance", "backward")
    kind = host.package.BBAlphaELBO if "alpha" in options else host.package.DeterministicELBO
    guide = getattr(host.package, cell.guide)(**({"p": 0.1} if "Dropout" in cell.guide else {}))
    if cell.network == "horseshoe":
        return models.with_horseshoe(host, cell.family), guide, kind(**options)
    return models.model(host, cell.network, cell.family), guide, kind(**options)


def row(cell: Cell, losses: Losses | str) -> str:
    """A row of the table."""
    if isinstance(losses, str):
        return f"| {' | '.join(cell)} |  |  |  | refused: {losses} |"
    drawn = losses.drawn
    figures = f"{drawn.loss:.2f} | {drawn.value:.2f} ± {drawn.standard_error:.2f}"
    share = "no mean" if losses.has_no_mean else f"{100 * losses.share:+.1f} %"
    return f"| {' | '.join(cell)} | {figures} | {share} | {losses.answer} |"


def silent(results: Mapping[Cell, Losses | str]) -> list[Cell]:
    """The cells that are off, and that `fit` confirms."""
    known = {cell: it for cell, it in results.items() if not isinstance(it, str)}
    return [cell for cell, it in known.items() if it.is_off and it.answer == AGREES]


def summary(results: Mapping[Cell, Losses | str]) -> str:
    """How many cells are off, and what `fit` says of them and of the others."""
    known = [it for it in results.values() if not isinstance(it, str)]
    right = [it for it in known if not it.is_off]
    agreed = sum(it.answer == AGREES for it in right)
    return (
        f"{len(known) - len(right)} of {len(known)} cells are off by more than {OFF:.0%} of E log "
        f"p; `fit` confirms {len(silent(results))} of them. Of the {len(right)} others it confirms "
        f"{agreed}.\n\n"
    )


def main() -> None:
    options = hosts.parser(__doc__, "--check", "--only").parse_args()
    chosen = [cell for cell in cells() if options.only in " ".join(cell)]
    results = hosts.in_two_processes(measured, chosen, row)
    print(summary(results))
    if not options.check:
        head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines = [*head, *itertools.starmap(row, results.items()), ""]
        PAGE.write_text(HEADER + summary(results) + "\n".join(lines), encoding="utf-8")
    elif found := silent(results):
        sys.exit(f"off, and fit agrees: {found}")


if __name__ == "__main__":
    main()
