"""Linear response, and the fit before it, in gradient evaluations of the same run.

    python benchmarks/response_time.py [--host numpyro] [--check]

A logistic regression of 10⁵ rows and 20 columns, and a hierarchy of 10⁵ groups with a latent each.
"""

import resource
import sys
import time
from functools import partial

import harness
import numpy as np
from models import observed, standard

from moment_inference.response.inverse_curvature import InverseCurvature

ROWS, COLUMNS, TRIALS = 10**5, 20, 5
REGRESSION_LIMIT, HIERARCHY_LIMIT = 100, 60  # gradient evaluations


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --check")
    host = harness.load(options.host)
    regression = sum(measured(host, "logistic", *logistic(host)))
    _, response = measured(host, "hierarchy", *hierarchy(host))
    slow = regression > REGRESSION_LIMIT or response > HIERARCHY_LIMIT
    sys.exit("slower than it should be" if options.check and slow else 0)


def logistic(host):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[ROWS, COLUMNS])
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-x @ rng.normal(size=COLUMNS) / 4))).astype(float)

    def predictor(x):
        return x @ host.sample("weight", standard(host)([COLUMNS]))

    return observed(host, predictor, "Bernoulli", head=lambda f: f), [x, y]


def hierarchy(host):
    rng = np.random.default_rng(0)
    chances = 1 / (1 + np.exp(-rng.normal(1, 0.7, size=[ROWS, 1])))
    y = (rng.random([ROWS, TRIALS]) < chances).astype(float)
    sample, plate, dist = host.sample, host.plate, host.dist

    def model(y):
        centre = sample("centre", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.HalfCauchy(2.0))
        with plate("groups", ROWS, dim=-2):
            effect = sample("effect", dist.Normal(centre, scale))
            with plate("trials", TRIALS, dim=-1):
                sample("obs", dist.Bernoulli(logits=effect), obs=y)

    return model, [y]


def measured(host, name, model, data):
    """The fit and the response in gradient evaluations; prints a row."""
    clocked = partial(harness.clocked, clock=time.perf_counter)
    with host.doubles():
        data = [host.array(part) for part in data]
        fit = harness.fitted(host, model, *data, method="lbfgs", float64=True)
        options, package = {"params": fit.params, "tolerance": 1.0}, host.package
        response, cold = clocked(
            lambda: package.linear_response(model, fit.guide, *data, **options)
        )
        problem = response.problem
        gradient = min(clocked(lambda: _elsewhere(problem))[1] for _ in range(10))
        warm = []
        for _ in range(3):
            _elsewhere(problem)
            warm.append(clocked(lambda: InverseCurvature(problem, 1.0))[1])
    ours = fit.seconds["fitting"] / gradient, min(warm) / gradient
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name:10s} gradient {1e3 * gradient:.1f} ms, fit {ours[0]:.0f} ({fit.steps} steps), "
        f"response {ours[1]:.0f} gradients (first call {cold:.1f} s), peak memory {memory:.1f} GiB",
        flush=True,
    )
    return ours


def _elsewhere(problem):
    """A gradient at another place: nothing of the last one helps."""
    objective, parameters = problem.program.objective, problem.program.parameters
    objective.value_and_slope(
        parameters + 1e-9 * np.random.default_rng().normal(size=parameters.size)
    )


if __name__ == "__main__":
    main()
