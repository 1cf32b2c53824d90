"""Newton's method and L-BFGS on real posteriors, against the means of their reference draws.

    python benchmarks/posteriors.py DIRECTORY [--backend numpyro] [--method lbfgs] [--check]

The directory holds a JSON file for each posterior of posteriordb, with its data and its reference.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from posteriors_designs import DESIGNS, EIGHT_SCHOOLS
from posteriors_models import eight_schools, regression

STEPS, NEAR, SHARE = 60, 0.05, 0.95  # of Newton; of a reference deviation; of the parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--backend", choices=("pyro", "numpyro"), default="pyro")
    parser.add_argument("--method", choices=("newton", "lbfgs"), default="newton")
    parser.add_argument("--only", default="", help="part of a posterior's name")
    parser.add_argument("--check", action="store_true", help="fail if one does not converge")
    options = parser.parse_args()
    host = importlib.import_module(f"posteriors_{options.backend}")
    print(f"{'posterior':46s} steps {'loss':>12s} seconds error  reason")
    names = [name for name in (*DESIGNS, EIGHT_SCHOOLS) if options.only in name]
    if not names:
        parser.error(f"no posterior has {options.only!r} in its name")
    found = [_tried(host, options.directory / f"{name}.json", options.method) for name in names]
    errors = np.concatenate([error for _, error in found])
    near = np.mean(errors <= NEAR)
    print(f"{len(errors)} parameters, {near:.1%} within {NEAR} reference deviations")
    slow = options.method == "newton" and any(fit.steps > STEPS for fit, _ in found)
    failed = slow or near < SHARE or not all(fit.converged for fit, _ in found)
    sys.exit("not all converge as they should" if options.check and failed else 0)


def _tried(host: ModuleType, path: Path, method: str) -> tuple[Any, np.ndarray]:
    """The fit of a posterior, and the errors of its means in reference deviations."""
    posterior = json.loads(path.read_text())
    name, data, start = path.stem, posterior["data"], time.perf_counter()
    if name == EIGHT_SCHOOLS:
        fit, sites = host.trained(lambda: eight_schools(host.HOST, data), method)
        means = _means_of_schools(sites)
    else:
        design = DESIGNS[name](data)
        fit, sites = host.trained(lambda: regression(host.HOST, design), method)
        means = dict(zip(design.coefficients(), sites["beta"][0], strict=True))
        means["sigma"] = _positive_mean(*sites["sigma"])
    seconds, reference = time.perf_counter() - start, posterior["reference"]
    known = zip(reference["parameters"], reference["mean"], reference["sd"], strict=True)
    errors = np.array([abs(means[at] - mean) / sd for at, mean, sd in known if at in means])
    row = f"{name:46s} {fit.steps:5d} {fit.loss:12.4f} {seconds:7.2f} {errors.max():.3f}"
    print(f"{row}  {fit.reason}", flush=True)
    return fit, errors


def _positive_mean(loc: Any, scale: Any) -> Any:
    """E exp(x), the transform of both hosts."""
    return np.exp(loc + scale**2 / 2)


def _means_of_schools(sites: dict[str, Any]) -> dict[str, Any]:
    mu, tau, standard = sites["mu"][0], _positive_mean(*sites["tau"]), sites["theta_trans"][0]
    schools = {f"theta[{i + 1}]": mu + tau * part for i, part in enumerate(standard)}
    return {**schools, "mu": mu, "tau": tau}


if __name__ == "__main__":
    main()
