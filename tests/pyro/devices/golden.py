"""Golden losses on both devices, whose models know of none: the default device chooses it.

``python -m tests.pyro.devices.golden`` prints, as JSON, what is wrong with each of all golden
losses; nothing if all numbers are equal. Tests evaluate those of ``chosen``.
"""

import json
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from tests.golden import losses
from tests.pyro.devices.backend import HERE

CELLS = dict(losses.cells())
# Found by coverage: with one loss of every other model, and the runs and uses beside them, these
# run each line, and take each branch, of the library that all golden losses do. A tensor on a
# wrong device is one of a line.
FULL, TILTED = "DVIGuide, ELBO full", "DVIGuide, BB-α full"
OTHERS = {
    "regression": ["DVIGuide, ELBO dvi", "DVIGuide, ELBO first order"],
    "residual": ["DVIGuide, ELBO dvi", "TridiagonalGuide, ELBO full"],
    "heteroscedastic": ["TridiagonalGuide, ELBO diagonal", "MCDropoutGuide, BB-α full"],
    "categorical": [
        *(f"DVIGuide, ELBO {kind}" for kind in ("pairs", "tilted", "jensen", "delta")),
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


def chosen() -> list[str]:
    """Of all golden losses the fewest that run every line."""
    models = dict.fromkeys(name.rsplit(", ", 2)[0] for name in CELLS)
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


def fault(cell: losses.Cell) -> str:
    try:
        check_cell(cell)
    except Exception as error:  # the test says what it is
        return f"{type(error).__name__}: {error}"
    return ""


def faults(names: Collection[str]) -> dict[str, str]:
    """Evaluate golden losses in double precision, and say what is wrong with each."""
    torch.set_default_dtype(torch.double)
    try:
        return {name: fault(CELLS[name]) for name in names}
    finally:
        torch.set_default_dtype(torch.float)


if __name__ == "__main__":
    print(json.dumps(faults(CELLS)))
