"""Newton's method and L-BFGS on real posteriors, against reference draws, or NUTS' wall clock.

    python benchmarks/posteriors.py DIRECTORY [--host numpyro] [--method lbfgs] [--nuts]

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
from posteriors_nuts import compared_with_nuts, trained

STEPS, NEAR, SHARE = 60, 0.05, 0.95  # of Newton; of a reference deviation; of the parameters


def main() -> None:
    parser = hosts.parser(__doc__, "--host", "--only", "--check")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--method", choices=("newton", "lbfgs"), default="newton")
    parser.add_argument("--nuts", action="store_true", help="compare seconds with NUTS'")
    options = parser.parse_args()
    host = hosts.load(options.host)
    names = [name for name in (*DESIGNS, EIGHT_SCHOOLS) if options.only in name]
    if not names:
        parser.error(f"no posterior has {options.only!r} in its name")
    posteriors = [Posterior.read(options.directory / f"{name}.json") for name in names]
    against = compared_with_nuts if options.nuts else _compared_with_references
    failed = against(host, posteriors, options.method)
    if options.check and failed:
        sys.exit(failed)


def _compared_with_references(host: ModuleType, posteriors: list[Posterior], method: str) -> str:
    """How a method falls short of the references; empty if it does not."""
    print(f"{'posterior':46s} steps {'loss':>12s} seconds error  reason")
    tried = [_tried(host, each, method) for each in posteriors]
    errors = np.concatenate([error for _, error in tried])
    near = np.mean(errors <= NEAR)
    print(f"{len(errors)} parameters, {near:.1%} within {NEAR} reference deviations")
    slow = method == "newton" and any(fit.steps > STEPS for fit, _ in tried)
    failed = slow or near < SHARE or not all(fit.converged for fit, _ in tried)
    return "not all converge as they should" if failed else ""


def _tried(host: ModuleType, posterior: Posterior, method: str) -> tuple[Any, np.ndarray]:
    """The fit of a posterior, and the errors of its means in reference deviations."""
    start = time.perf_counter()
    fit = trained(host, posterior, method)
    seconds = time.perf_counter() - start
    with host.doubles():
        errors = compared(posterior, host.posterior_draws(fit.guide, fit.params, DRAWS)).errors
    row = f"{posterior.name:46s} {fit.steps:5d} {fit.loss:12.4f} {seconds:7.2f} {errors.max():.3f}"
    print(f"{row}  {fit.reason}", flush=True)
    return fit, errors


if __name__ == "__main__":
    main()
