"""Objectives at the optimum that they lead to: the loss as stated, and by 10⁴ draws.

A covering design of guide × covariance × objective × likelihood × depth (every pair of values of
two axes), and the defaults in both covariances at every likelihood and depth, trained by L-BFGS on
64 rows of scikit-learn's diabetes data, in Pyro. The means of powers are taken over blocks of 500.

    python benchmarks/at_the_optimum.py          # writes docs/at_the_optimum.md
    python benchmarks/at_the_optimum.py --check  # fails where a cell is off and no exception
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from sklearn.datasets import load_diabetes
from torch import nn

from pyro_moments import (
    BBAlphaELBO,
    DeterministicELBO,
    DVIGuide,
    MCDropoutGuide,
    TridiagonalGuide,
    fit,
)

ROWS, INPUTS, HIDDEN, STEPS = 64, 4, 10, 400
PARTICLES, TOGETHER = 10_000, 500
OFF, ERRORS = 0.02, 3.0  # relative difference, and standard errors, that a cell may have
PAGE = Path(__file__).parent.parent / "docs" / "at_the_optimum.md"

HEADER = """# Losses at the optimum

What an objective states where training has led, beside 10⁴ draws of the same objective, for every
pair of values of guide, covariance, objective, likelihood and number of hidden layers (ten relu
units each, 64 rows). A cell is off where the difference exceeds 2 % and three standard errors; the
last column says why. `fit` makes the same comparison by 32 draws at its end, and the column before
shows whether it warned. Written by `python benchmarks/at_the_optimum.py`.

| guide | covariance | objective | likelihood | layers | stated | by draws | by | warning | why |
|---|---|---|---|---|---|---|---|---|---|"""

GUIDES = {
    "DVIGuide": DVIGuide,
    "TridiagonalGuide": TridiagonalGuide,
    "MCDropoutGuide": lambda: MCDropoutGuide(p=0.1),
}
ALPHAS = {"ELBO": 0.0, "BB-α 0.1": 0.1, "BB-α 0.5": 0.5, "BB-α 1": 1.0}
FAMILIES = {
    "Normal": (1, lambda f: dist.Normal(f[..., 0], 0.5)),
    "heteroscedastic": (2, lambda f: dist.Normal(f[..., 0], torch.exp(0.5 * f[..., 1]))),
    "StudentT": (1, lambda f: dist.StudentT(4.0, f[..., 0], 0.5)),
    "Bernoulli": (1, lambda f: dist.Bernoulli(logits=f[..., 0])),
    "Categorical": (3, lambda f: dist.Categorical(logits=f)),
    "ordinal": (1, lambda f: dist.OrderedLogistic(f[..., 0], torch.tensor([-1.0, 1.0]))),
    "Poisson": (1, lambda f: dist.Poisson(torch.exp(f[..., 0]))),
    "Gamma": (1, lambda f: dist.Gamma(2.0, 2.0 * torch.exp(-f[..., 0]))),
}


class Cell(NamedTuple):
    """One combination."""

    guide: str
    covariance: str
    objective: str
    family: str
    depth: int


AXES = (tuple(GUIDES), ("full", "diagonal"), tuple(ALPHAS), tuple(FAMILIES), (1, 2, 3))

DEEP = "three layers pass on what is no Gaussian, and the tails are heavy"
MASKS = "sums of few masked inputs are no Gaussians"
EXCEPTIONS = {
    Cell("DVIGuide", "full", "ELBO", "StudentT", 3): DEEP,
    Cell("DVIGuide", "diagonal", "ELBO", "StudentT", 3): DEEP,
    Cell("DVIGuide", "full", "BB-α 0.5", "StudentT", 3): DEEP,
    Cell("MCDropoutGuide", "diagonal", "BB-α 0.1", "heteroscedastic", 2): MASKS,
}


class Network(PyroModule):
    """Hidden relu layers and a likelihood; standard normal priors over all weights and biases."""

    def __init__(self, depth: int, outputs: int, likelihood) -> None:
        super().__init__()
        sizes = [INPUTS, *[HIDDEN] * depth, outputs]
        self.layers = PyroModule[nn.ModuleList](
            PyroModule[nn.Linear](*pair) for pair in itertools.pairwise(sizes)
        )
        for layer in self.layers:
            for name, value in list(layer.named_parameters()):
                scale = value.shape[-1] ** -0.5 if name == "weight" else 1.0
                prior = dist.Normal(0.0, scale).expand(value.shape).to_event(value.dim())
                setattr(layer, name, PyroSample(prior))
        self.likelihood = likelihood

    def forward(self, x, y=None):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        out = self.layers[-1](x)
        with pyro.plate("rows", len(x)):
            return pyro.sample("obs", self.likelihood(out), obs=y)


def data(family: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised inputs, and the target as the likelihood takes it."""
    inputs, target = load_diabetes(return_X_y=True)
    inputs, target = inputs[:ROWS, [2, 8, 3, 0]], target[:ROWS]
    x = torch.tensor((inputs - inputs.mean(0)) / inputs.std(0), dtype=torch.float32)
    classes = torch.tensor(np.searchsorted(np.quantile(target, [1 / 3, 2 / 3]), target))
    standard = torch.tensor((target - target.mean()) / target.std(), dtype=torch.float32)
    known = {
        "Bernoulli": (standard > 0).float(),
        "Categorical": classes,
        "ordinal": classes,
        "Poisson": torch.tensor(np.round(target / 50), dtype=torch.float32),
        "Gamma": torch.tensor(target / target.mean(), dtype=torch.float32),
    }
    return x, known.get(family, standard)


def cells() -> list[Cell]:
    """The defaults at every likelihood and depth, and a covering of all pairs of values."""
    chosen = [
        Cell(AXES[0][0], covariance, AXES[2][0], *rest)
        for covariance in AXES[1]
        for rest in itertools.product(*AXES[3:])
    ]
    everything = [Cell(*values) for values in itertools.product(*AXES)]
    missing = set().union(*map(_pairs, everything)) - set().union(*map(_pairs, chosen))
    while missing:
        best = max(everything, key=lambda cell: len(missing & _pairs(cell)))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


def _pairs(cell: Cell) -> set:
    return set(itertools.combinations(enumerate(cell), 2))


def by_draws(objective, model, guide, x, y, alpha: float) -> tuple[float, float]:
    """The loss by draws and its standard error, from the energies of blocks of draws."""
    drawn = type(objective)(
        propagation="sampled", num_particles=TOGETHER, **({"alpha": alpha} if alpha else {})
    )
    loss = drawn(model, guide)
    blocks = [float(loss(x, y)) for _ in range(PARTICLES // TOGETHER)]
    return float(np.mean(blocks)), float(np.std(blocks) / math.sqrt(len(blocks) - 1))


def measured(cell: Cell) -> tuple[float, float, float, str]:
    """The loss as stated, by draws, the standard error of the latter, and what the user is told."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    alpha, (outputs, likelihood) = ALPHAS[cell.objective], FAMILIES[cell.family]
    model, guide = Network(cell.depth, outputs, likelihood), GUIDES[cell.guide]()
    x, y = data(cell.family)
    kind = BBAlphaELBO if alpha else DeterministicELBO
    objective = kind(covariance=cell.covariance, **({"alpha": alpha} if alpha else {}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = fit(
            model, guide, x, y, objective=objective, method="lbfgs", steps=STEPS, progress_bar=False
        )
    words = sorted({type(warning.message).__name__ for warning in told})
    with torch.no_grad():
        return (result.loss, *by_draws(objective, model, guide, x, y, alpha), " ".join(words))


def is_off(stated: float, drawn: float, error: float) -> bool:
    """Whether a cell is off by more than the limits."""
    return abs(stated - drawn) > max(OFF * abs(drawn), ERRORS * error)


def rows_of_the_table() -> tuple[list[str], list[Cell]]:
    """A row for each cell, and the cells that are off."""
    lines, off = [], []
    for cell in cells():
        stated, drawn, error, told = measured(cell)
        relative = 100 * (stated - drawn) / abs(drawn)
        if is_off(stated, drawn, error):
            off.append(cell)
        mark = EXCEPTIONS.get(cell, "off") if cell in off else ""
        figures = f"{stated:.2f} | {drawn:.2f} ± {error:.2f} | {relative:+.1f} %"
        lines.append(f"| {' | '.join(map(str, cell))} | {figures} | {told} | {mark} |")
        print(lines[-1], flush=True)
    return lines, off


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where a cell is off")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    lines, off = rows_of_the_table()
    if not check:
        PAGE.write_text("\n".join([HEADER, *lines, ""]), encoding="utf-8")
    elif unknown := set(off) - set(EXCEPTIONS):
        sys.exit(f"off and no exception: {sorted(unknown)}")


if __name__ == "__main__":
    main()
