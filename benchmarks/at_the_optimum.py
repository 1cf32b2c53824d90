"""Objectives at the optimum that they lead to: the loss as stated, and by 10⁴ draws.

The defaults in both covariances at every likelihood and depth, in both hosts, and every guide ×
objective × likelihood once, in the host, covariance and depth that cover the most triples of values
(and every pair), trained by L-BFGS on 64 rows of scikit-learn's diabetes data, by two processes.

    python benchmarks/at_the_optimum.py          # writes docs/at_the_optimum.md
    python benchmarks/at_the_optimum.py --check  # fails where a cell is off and no exception
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import at_the_optimum_models as models
import hosts

from moment_inference.objectives.by_draws import Look, pooled_energy

STEPS, PARTICLES, TOGETHER = 400, 10_000, 500
OFF, ERRORS = 0.02, 3.0  # relative difference, and standard errors, that a cell may have
PAGE = Path(__file__).parent.parent / "docs" / "at_the_optimum.md"

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

GUIDES = {"DVIGuide": {}, "TridiagonalGuide": {}, "MCDropoutGuide": {"p": 0.1}}
OBJECTIVES = {"ELBO": {}, "BB-α 0.1": {"alpha": 0.1}, "BB-α 0.5": {"alpha": 0.5}}
OBJECTIVES |= {"BB-α 1": {"alpha": 1.0}}


class Cell(NamedTuple):
    """One combination."""

    host: str
    guide: str
    covariance: str
    objective: str
    family: str
    depth: int


AXES = (
    ("pyro", "numpyro"),
    tuple(GUIDES),
    ("full", "diagonal"),
    tuple(OBJECTIVES),
    models.FAMILIES,
    (1, 2, 3),
)

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


class Losses(NamedTuple):
    """A cell measured.

    Args:
        stated: the loss in closed form.
        by_draws: the loss by draws.
        error: standard error of ``by_draws``.
        warnings: what the user is warned of.
        seconds: of the processor.
    """

    stated: float
    by_draws: float
    error: float
    warnings: str
    seconds: float

    @property
    def relative(self) -> float:
        """The difference, as a part of the loss by draws."""
        return (self.stated - self.by_draws) / abs(self.by_draws)

    @property
    def is_off(self) -> bool:
        """Whether the difference exceeds the limits."""
        return abs(self.relative) > max(OFF, ERRORS * self.error / abs(self.by_draws))


def cells() -> list[Cell]:
    """The defaults, and a cell for each other guide, objective and likelihood."""
    everything = [Cell(*values) for values in itertools.product(*AXES)]
    chosen = [cell for cell in everything if cell[1:5:2] == (AXES[1][0], AXES[3][0])]
    covered = set().union(*map(_triples, chosen))
    key = lambda cell: (cell.guide, cell.objective, cell.family)  # noqa: E731
    done = set(map(key, chosen))
    for _, alike in itertools.groupby(sorted(everything, key=key), key):
        options = list(alike)
        if key(options[0]) not in done:
            chosen.append(max(options, key=lambda cell: len(_triples(cell) - covered)))
            covered |= _triples(chosen[-1])
    return chosen


def _triples(cell: Cell) -> set:
    return set(itertools.combinations(enumerate(cell), 3))


def measured(cell: Cell) -> Losses:
    """The loss as stated, by draws, and what the user is told."""
    began = time.process_time()
    host = hosts.load(cell.host)
    host.forget()
    host.fresh()
    model, options = models.network(host, cell.depth, cell.family), OBJECTIVES[cell.objective]
    data = tuple(map(host.array, models.data(cell.family)))
    start = host.init_to_value(values=models.start(host, cell.depth, cell.family))
    guide = getattr(host.package, cell.guide)(init_loc_fn=start, **GUIDES[cell.guide])
    kind = host.package.BBAlphaELBO if options else host.package.DeterministicELBO
    objective = kind(covariance=cell.covariance, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = host.package.fit(
            model,
            guide,
            *data,
            objective=objective,
            method="lbfgs",
            steps=STEPS,
            progress_bar=False,
        )
    terms = host.terms_by_draws(objective, model, fit, data, TOGETHER, PARTICLES // TOGETHER)
    words = " ".join(sorted({warning.category.__name__ for warning in caught}))
    looks = [Look(part, objective.alpha) for part in terms]
    by_draws = pooled_energy(looks, alpha=objective.alpha)
    return Losses(fit.loss, *by_draws, words, time.process_time() - began)


def row(cell: Cell, losses: Losses) -> str:
    """A row of the table."""
    why = EXCEPTIONS.get(cell, "off") if losses.is_off else ""
    figures = f"{losses.stated:.2f} | {losses.by_draws:.2f} ± {losses.error:.2f}"
    words = f"{100 * losses.relative:+.1f} % | {losses.warnings} | {why}"
    return f"| {' | '.join(map(str, cell))} | {figures} | {words} |"


def main() -> None:
    check = hosts.parser(__doc__, "--check").parse_args().check
    shown = lambda cell, losses: f"{row(cell, losses)} {losses.seconds:.0f} s"  # noqa: E731
    results = hosts.in_two_processes(measured, cells(), shown)
    print(f"{sum(losses.seconds for losses in results.values()):.0f} seconds of the processor")
    if not check:
        head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines = [*head, *itertools.starmap(row, results.items()), ""]
        PAGE.write_text(HEADER + "\n".join(lines), encoding="utf-8")
    elif unknown := {cell for cell, losses in results.items() if losses.is_off} - set(EXCEPTIONS):
        sys.exit(f"off and no exception: {sorted(unknown)}")


if __name__ == "__main__":
    main()
