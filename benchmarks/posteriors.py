"""Newton's method and L-BFGS on real posteriors, against reference draws.

    python benchmarks/posteriors.py DIRECTORY [--host numpyro] [--method lbfgs]

The directory holds a JSON file for each posterior of posteriordb, with its data and its reference.
"""

import sys
import time

import harness
import numpy as np
from posteriordb import DRAWS, Posterior, compared
from posteriors_models import DESIGNS, EIGHT_SCHOOLS

STEPS, NEAR, SHARE = 60, 0.05, 0.95  # of Newton; of a reference deviation; of the parameters


def main(arguments=None):
    methods = ("newton", "which is tried", ["newton", "lbfgs"])
    common = "--host --only --check directory"
    options = harness.parse(__doc__, arguments, common, method=methods)
    host, fits, errors = harness.load(options.host), [], []
    print(f"{'posterior':46s} steps {'loss':>12s} seconds error  reason")
    for name in (*DESIGNS, EIGHT_SCHOOLS):
        if options.only in name:
            posterior = Posterior.read(options.directory / f"{name}.json")
            fit, error = tried(host, posterior, options.method)
            fits.append(fit)
            errors += [*error]
    near = np.mean(np.array(errors) <= NEAR)
    print(f"{len(errors)} parameters, {near:.1%} within {NEAR} reference deviations")
    slow = options.method == "newton" and any(fit.steps > STEPS for fit in fits)
    converge = not slow and near >= SHARE and all(fit.converged for fit in fits)
    if options.check and not converge:
        sys.exit("not all converge as they should")


def tried(host, posterior, method):
    """The fit of a posterior, and the errors of its means in reference deviations."""
    with host.doubles():
        fit, seconds = harness.clocked(
            lambda: harness.fitted(host, posterior.model(host), method=method, float64=True),
            time.perf_counter,
        )
        errors = compared(posterior, host.posterior_draws(fit.guide, fit.params, DRAWS)).errors
    row = f"{posterior.name:46s} {fit.steps:5d} {fit.loss:12.4f} {seconds:7.2f} {errors.max():.3f}"
    print(f"{row}  {fit.reason}", flush=True)
    return fit, errors


if __name__ == "__main__":
    main()
