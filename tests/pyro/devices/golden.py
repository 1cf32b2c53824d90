"""What takes long, on both devices: golden losses, and a comparison with chains.

Models of the golden losses know of no device: ``torch.set_default_device`` chooses it.

``python -m tests.pyro.devices.golden`` prints, as JSON, what is wrong with each; nothing if
all numbers are equal. With ``all`` it evaluates every golden loss, and else those of ``chosen``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import torch

from tests.golden import losses
from tests.pyro.devices.backend import HERE
from tests.pyro.devices.programs import SLOW_RUNS, results

# Found by coverage: with one loss of every other model these run each line, and take each branch,
# of the library that all golden losses do. A tensor on a wrong device is one of a line.
FULL, TILTED = "DVIGuide, ELBO full", "DVIGuide, BB-α full"
OTHERS = {
    "regression": [
        *("DVIGuide, ELBO backward", "DVIGuide, ELBO dvi", "DVIGuide, ELBO first order"),
        "TridiagonalGuide, ELBO full",
    ],
    "residual": [FULL, "DVIGuide, ELBO dvi", "TridiagonalGuide, ELBO full"],
    "heteroscedastic": [
        *("DVIGuide, ELBO diagonal", "TridiagonalGuide, ELBO diagonal", TILTED),
        "MCDropoutGuide, BB-α full",
    ],
    "categorical": [
        *(f"DVIGuide, ELBO {kind}" for kind in ("full", "pairs", "tilted", "jensen", "delta")),
        "TridiagonalGuide, BB-α full",
    ],
    "log-normal": ["DVIGuide, ELBO backward", TILTED],
    "probabilities": ["DVIGuide, BB-α backward"],
    "overdispersed": [FULL, "DVIGuide, BB-α backward"],
    "gamma": ["DVIGuide, ELBO diagonal", TILTED],
    "varying slopes": ["DVIGuide, BB-α diagonal"],
    "half centred": ["DVIGuide, BB-α backward"],
    "horseshoe": [FULL, "DVIGuide, ELBO backward", "DVIGuide, ELBO diagonal"],
    **{model: [FULL, TILTED] for model in ("linear", "robust", "negative binomial", "ordinal")},
    **{model: [TILTED] for model in ("binomial", "Poisson", "waiting", "geometric")},
}


def chosen(names: Collection[str]) -> list[str]:
    """Of all golden losses the fewest that run every line."""
    models = dict.fromkeys(name.rsplit(", ", 2)[0] for name in names)
    return [f"{model}, {rest}" for model in models for rest in OTHERS.get(model, [FULL])]


def evaluated(cell: losses.Cell, device: Any) -> dict[str, torch.Tensor]:
    torch.set_default_device(device)
    try:
        return losses.in_pyro(cell)
    finally:
        torch.set_default_device(None)


def check_cell(cell: losses.Cell) -> None:
    expected, found = evaluated(cell, "cpu"), evaluated(cell, HERE)
    for name, value in expected.items():
        assert found[name].device == HERE, f"{name} is on {found[name].device}"
        np.testing.assert_allclose(found[name].cpu(), value, rtol=1e-10, atol=1e-12)


def check_run(run: str) -> None:
    np.testing.assert_allclose(results(run, HERE), results(run, "cpu"), rtol=1e-10)


def fault(check: Callable[..., None], *arguments: Any) -> str:
    try:
        check(*arguments)
    except Exception as error:  # the test says what it is
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    torch.set_default_dtype(torch.double)
    cells = dict(losses.cells())
    names = cells if "all" in sys.argv else chosen(cells)
    faults = {name: fault(check_cell, cells[name]) for name in names}
    with redirect_stdout(sys.stderr):
        faults |= {run: fault(check_run, run) for run in SLOW_RUNS}
    print(json.dumps(faults))
