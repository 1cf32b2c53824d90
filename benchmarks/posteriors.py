"""Newton's method and L-BFGS on real posteriors, against reference draws.

    python benchmarks/posteriors.py DIRECTORY [--host numpyro] [--method lbfgs]

The directory holds a JSON file for each posterior of posteriordb, with its data and its reference.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import hosts
import numpy as np
from posteriordb_report import DRAWS, compared
from posteriors_designs import DESIGNS, EIGHT_SCHOOLS
from posteriors_models import Posterior

STEPS, NEAR, SHARE = 60, 0.05, 0.95  # of Newton; of a reference deviation; of the parameters


def main() -> None:
    parser = hosts.parser(__doc__, "--host", "--only", "--check")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--method", choices=("newton", "lbfgs"), default="newton")
    options = parser.parse_args()
    host = hosts.load(options.host)
    names = [name for name in (*DESIGNS, EIGHT_SCHOOLS) if options.only in name]
    if not names:
        parser.error(f"no posterior has {options.only!r} in its name")
    posteriors = [Posterior.read(options.directory / f"{name}.json") for name in names]
    converge = _compared(host, posteriors, options.method)
    if options.check and not converge:
        sys.exit("not all converge as they should")


def _compared(host: ModuleType, posteriors: list[Posterior], method: str) -> bool:
    """Whether all fits converge, in few steps and near the references."""
    print(f"{'posterior':46s} steps {'loss':>12s} seconds error  reason")
    tried = [_tried(host, each, method) for each in posteriors]
    errors = np.concatenate([error for _, error in tried])
    near = np.mean(errors <= NEAR)
    print(f"{len(errors)} parameters, {near:.1%} within {NEAR} reference deviations")
    slow = method == "newton" and any(fit.steps > STEPS for fit, _ in tried)
    return not slow and near >= SHARE and all(fit.converged for fit, _ in tried)


def _tried(host: ModuleType, posterior: Posterior, method: str) -> tuple[Any, np.ndarray]:
    """The fit of a posterior, and the errors of its means in reference deviations."""
    start = time.perf_counter()
    with host.doubles():
        fit = hosts.fitted(host, posterior.model(host), method=method, float64=True)
        seconds = time.perf_counter() - start
        errors = compared(posterior, host.posterior_draws(fit.guide, fit.params, DRAWS)).errors
    row = f"{posterior.name:46s} {fit.steps:5d} {fit.loss:12.4f} {seconds:7.2f} {errors.max():.3f}"
    print(f"{row}  {fit.reason}", flush=True)
    return fit, errors


if __name__ == "__main__":
    main()
