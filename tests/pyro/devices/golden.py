"""What takes long, on both devices: golden losses, and a comparison with chains.

Models of the golden losses know of no device: ``torch.set_default_device`` chooses it.

``python -m tests.pyro.devices.golden`` prints, as JSON, what is wrong with each; nothing if
all numbers are equal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import torch

from tests.golden import losses
from tests.pyro.devices.backend import HERE
from tests.pyro.devices.programs import SLOW_RUNS, results


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
    faults = {name: fault(check_cell, cell) for name, cell in losses.cells()}
    with redirect_stdout(sys.stderr):
        faults |= {run: fault(check_run, run) for run in SLOW_RUNS}
    print(json.dumps(faults))
