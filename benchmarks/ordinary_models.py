"""Steps of ordinary regressions: one ELBO with its gradient, against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/ordinary_models.py [--host numpyro] [--check]

Regressions of P = 20 covariates with each likelihood, a gamma-Poisson regression of 60 rows, and
three models of the examples of NumPyro. The reference is TraceMeanField_ELBO with AutoNormal and
one particle, in turn with ours in one process, on one thread. In Pyro the minimum over the repeats
counts, in NumPyro, where everything runs under jax.jit, the median; first steps are there compared
too (the time of tracing and compiling). Of a million rows the memory of a step is compared too.
"""

import time

import harness
import numpy as np
from harness import REFERENCE, Measured, compared
from models import contender, observed, standard, steps

ROWS, COVARIATES, SMALL = 10_000, 20, (60, 3)
LARGE, LARGE_LIMIT, MEMORY = 1_000_000, {"pyro": 2.0, "numpyro": 1.5}, 2.0
CLOSED = "DeterministicELBO + DVIGuide"
FIRST_STEP = 0.9  # largest ratio of the times that tracing and compiling take
LIMITS = {
    "Bernoulli": {"pyro": 1.1, "numpyro": 1.5},
    "Poisson": {"pyro": 1.5, "numpyro": 1.5},
    "NegativeBinomial": {"pyro": 3.0, "numpyro": 1.5},
    "StudentT": {"pyro": 3.0, "numpyro": 2.0},
    "Gamma": {"pyro": 4.0, "numpyro": 4.0},
    "OrderedLogistic": {"pyro": 4.0, "numpyro": 4.0},
    "GammaPoisson": {"pyro": 4.0, "numpyro": 4.0},
}
EXAMPLE = 1.5  # largest ratio of the examples


def main(arguments=None):
    own = {"repeats": (30, "of a regression"), "rows": (ROWS, "of a regression")}
    options = harness.parse(__doc__, arguments, "--host --only --check --out", **own)
    harness.run(options, rows, harness.by_title)


def rows(host, options):
    repeats, few = options.repeats, max(3, options.repeats // 10)
    cases = [(name, options.rows, COVARIATES, repeats) for name in LIMITS]
    cases += [("Bernoulli", LARGE, COVARIATES, few)]
    cases += [("GammaPoisson", *SMALL, 5 * repeats)] * (options.host == "pyro")
    for name, count, covariates, times in cases:
        title = f"{name}, {count} x {covariates}"
        if options.only in title:
            made = regression(host, name, count, covariates)
            first = FIRST_STEP if count == options.rows and name == "Bernoulli" else None
            limits = LARGE_LIMIT if count == LARGE else LIMITS[name]
            yield from beside(host, title, *made, times, limits[options.host], first)
    for name, make in EXAMPLES.items() if options.host == "numpyro" else ():
        if options.only in name:
            yield from beside(host, name, *make(host), 20 * repeats, EXAMPLE, FIRST_STEP)


def beside(host, title, model, data, repeats, limit, first_limit):
    """Times of a step, and in NumPyro of the first one."""

    def pair(host, name):
        return contender(host, "full" if name == CLOSED else name)

    made = steps(host, [REFERENCE, CLOSED], model, data, pair)
    only = {name: step for name, (step, _) in made.items()}
    times = harness.timed(only, repeats, time.perf_counter)
    yield from compared(title, host.BY, times, {CLOSED: limit})
    parts = []
    if len(data[0]) == LARGE:
        peaks = {name: host.workspace(step) / 1e9 for name, step in only.items()}
        parts.append(("MB for ms", peaks, MEMORY))
    if host.NAME == "NumPyro":
        parts.append(("first step", {name: part for name, (_, part) in made.items()}, first_limit))
    for what, values, most in parts:
        found = {name: Measured(name, value, value) for name, value in values.items()}
        yield from compared(f"{what}, {title}", host.BY, found, {CLOSED: most})


def regression(host, name, rows, covariates):
    """A regression with a likelihood by the linear predictor f, and its data."""

    def predictor(x):
        intercept = host.sample("intercept", host.dist.Normal(0.0, 2.0))
        return intercept + x @ host.sample("slopes", standard(host)([covariates]))

    cuts, family = [-1.0, 0.0, 1.0], {"OrderedLogistic": "ordinal"}.get(name, name)
    model = observed(host, predictor, family, cuts=cuts, head=lambda f: f)
    x = host.normal(0, rows, covariates)
    return model, (x, host.simulated(model, x))


def network(host):
    """Two hidden layers of 5 units and tanh, the noise's precision Gamma distributed."""

    def model(x, y):
        for place, shape in enumerate([(3, 5), (5, 5), (5, 1)]):
            prior = host.dist.Normal(host.np.zeros(shape), host.np.ones(shape))
            weight = host.sample(f"weight{place}", prior)
            x = (host.np.tanh(x) if place else x) @ weight
        scale = 1.0 / host.np.sqrt(host.sample("precision", host.dist.Gamma(3.0, 1.0)))
        with host.plate("data", len(y)):
            host.sample("obs", host.dist.Normal(x, scale).to_event(1), obs=y)

    x = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    return model, (host.array(x ** np.arange(3)), host.array(np.sin(3 * x)))


def proportions(host):
    """A probability with a uniform prior for each binomial count."""

    def model(total, y):
        with host.plate("groups", len(total)):
            p = host.sample("p", host.dist.Uniform(0.0, 1.0))
            host.sample("obs", host.dist.Binomial(total, p), obs=y)

    return model, (host.array(np.full(20, 50)), host.array(np.arange(15, 35)))


def horseshoe(host):
    """Linear regression with a horseshoe prior, its noise's precision Gamma distributed."""
    sample, dist = host.sample, host.dist

    def model(x, y):
        ones = host.np.ones(x.shape[1])
        local = sample("lambdas", dist.HalfCauchy(ones))
        overall = sample("tau", dist.HalfCauchy(host.np.ones(1)))
        slopes = sample("unscaled", dist.Normal(0.0, ones))
        scale = 1.0 / host.np.sqrt(sample("precision", dist.Gamma(3.0, 1.0)))
        with host.plate("data", len(y)):
            sample("obs", dist.Normal(x @ (overall * local * slopes), scale), obs=y)

    x = host.normal(0, 100, 20)
    return model, (x, x[:, 0] - 2 * x[:, 1])


EXAMPLES = {
    "network 3-5-5-1, 50 rows": network,
    "Uniform x Binomial, 20 groups": proportions,
    "horseshoe, 100 x 20": horseshoe,
}


if __name__ == "__main__":
    main()
