"""Effects of `effects` by nested inference beside NUTS: a simulated data set for each.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/effects.py --host numpyro \
        --out docs/experiments/effects.json

Tasks: ``nested`` has moments of all latent sites and the evidence; ``nuts`` draws 2000 after 500
of warm-up, in NumPyro. Each model has a process of its own; seconds are those of its processor,
compilers included. What is measured is added to the file.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import harness
import numpy as np
from covariances import written

WARM_UP, DRAWS = 500, 2000
TIMES, ROWS, SIDE = 100, 120, 8
NUMBER = np.arange(SIDE**2).reshape(SIDE, SIDE)
RIGHT, DOWN = (NUMBER[:, :-1], NUMBER[:, 1:]), (NUMBER[:-1], NUMBER[1:])
EDGES = np.concatenate([np.stack([part.ravel() for part in pair], 1) for pair in (RIGHT, DOWN)])
WHERE = np.stack([NUMBER // SIDE, NUMBER % SIDE], -1).reshape(-1, 2)
X = np.linspace(0.0, 10.0, ROWS)
STEPS = np.arange(TIMES)
rng = np.random.default_rng(60)
OUTER, INNER = rng.integers(0, 12, 2 * ROWS), rng.integers(0, 8, 2 * ROWS)
SLOW, ROUGH, SMOOTH = np.sin(STEPS / 12), np.cumsum(0.2 * rng.normal(size=TIMES)), np.sin(X)
HILLS = np.sin(WHERE[:, 0] / 2) + 0.3 * rng.normal(size=SIDE**2)
OF_GROUPS = 0.7 * rng.normal(size=12)[OUTER] + 0.4 * rng.normal(size=8)[INNER]
COMBINATION = 8 * (OUTER % 4) + INNER
NESTED = 0.7 * rng.normal(size=4)[OUTER % 4] + 0.4 * rng.normal(size=32)[COMBINATION]


@dataclass(frozen=True)
class Case:
    """An effect in a host, what it is in the data, and how these are observed."""

    effect: Callable  # of the host's helpers, and of a function that samples a site
    truth: np.ndarray
    is_counted: bool = True

    @property
    def data(self):
        """What is observed."""
        generator = np.random.default_rng(1)
        if self.is_counted:
            return generator.poisson(np.exp(1.0 + 0.6 * self.truth)).astype(float)
        return 1.0 + self.truth + 0.3 * generator.normal(size=self.truth.shape)

    def make(self, host):
        """The model of a host."""
        dist = host.dist
        priors = {"share": dist.Uniform(0.0, 1.0), "length": dist.LogNormal(0.5, 0.5)}

        def sample(name):
            return host.sample(name, priors.get(name, dist.HalfNormal(1.0)))

        def model(y):
            level = host.sample("level", dist.Normal(0.0, 2.0))
            eta = level + self.effect(host.package.effects, sample)
            noise = None if self.is_counted else sample("noise")
            with host.plate("rows", len(y)):
                fn = dist.Poisson(host.np.exp(eta)) if noise is None else dist.Normal(eta, noise)
                host.sample("obs", fn, obs=y)

        return model


def walk(order):
    return lambda effects, sample: effects.random_walk("e", sample("scale"), TIMES, order)


def series(effects, sample):
    return effects.autoregressive("e", sample("scale"), sample("share"), TIMES)


def neighbours(effects, sample):
    return effects.neighbours("e", sample("scale"), EDGES, SIDE**2)


def bym2(effects, sample):
    return effects.bym2("e", sample("scale"), sample("share"), EDGES, SIDE**2)


def process(kernel):
    return lambda effects, sample: effects.hilbert_space(
        "e", X, sample("height"), sample("length"), kernel=kernel
    )


def crossed(effects, sample):
    outer = effects.groups("outer", sample("of outer"), OUTER, 12)
    return outer + effects.groups("inner", sample("of inner"), INNER, 8)


def within(effects, sample):
    outer = effects.groups("outer", sample("of outer"), OUTER % 4, 4)
    return outer + effects.groups("inner", sample("of inner"), COMBINATION, 32)


def spline(effects, sample):
    return effects.spline("e", X, sample("scale"))


CASES = {
    "random walk, 100 times": Case(walk(1), ROUGH),
    "random walk of order 2": Case(walk(2), SLOW),
    "autoregression, 100 times": Case(series, ROUGH),
    "neighbours, 8 × 8": Case(neighbours, HILLS),
    "BYM2, 8 × 8": Case(bym2, HILLS),
    "Hilbert space, squared exponential": Case(process("squared exponential"), SMOOTH, False),
    "Hilbert space, Matérn 3/2": Case(process("matern 3/2"), SMOOTH, False),
    "crossed groups, 12 × 8": Case(crossed, OF_GROUPS),
    "nested groups, 4 of 8": Case(within, NESTED),
    "spline of 20": Case(spline, SMOOTH, False),
}


def main(arguments=None):
    tasks = ("nested", "what is measured", [*TASKS])
    options = harness.parse(__doc__, arguments, "--host --only --out", task=tasks)
    for name in CASES:
        if options.only not in name:
            continue
        try:
            (found,) = harness.in_processes(measured, [(options.host, options.task, name)])
        except Exception as error:  # the others may still be measured
            found = {"failure": f"{type(error).__name__}: {error}"}
        report(options.out, name, f"{options.host} {options.task}", found)


def report(path, name, key, found):
    """Print what was measured, and add it to the file."""
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(name, {})[key] = found
        path.write_text(written({name: known[name] for name in CASES if name in known}))
    plain = {part: value for part, value in found.items() if part != "sites"}
    print(f"{name:36s} {key:16s} {json.dumps(plain, ensure_ascii=False)}", flush=True)


def measured(host_name, task, name):
    """What a task finds of a model."""
    host, case = harness.load(host_name), CASES[name]
    with host.own_parameters(), host.doubles():
        host.fresh()
        return TASKS[task](host, case.make(host), host.array(case.data))


def nested(host, model, y):
    """Moments of all latent sites, the evidence, and seconds of the first call and the second."""
    posterior, first = harness.clocked(lambda: host.package.nested(model, y))
    _, second = harness.clocked(lambda: host.package.nested(model, y))
    sites = (*posterior.hyperparameters, *posterior.field)
    marginals = {site: posterior.marginal(site) for site in sites}
    return {
        "evidence": round(float(posterior.log_evidence), 7),
        "error": round(float(posterior.log_evidence_error), 4),
        "warnings": posterior.warnings,
        "seconds": {"first": round(first, 2), "second": round(second, 2)},
        "sites": {n: listed(each.mean, each.standard_deviation) for n, each in marginals.items()},
    }


def nuts(host, model, y):
    """Moments of all sites by one chain of the framework's own sampler, as it is by default."""
    draws, seconds = harness.clocked(lambda: host.one_chain(model, (y,), WARM_UP, DRAWS))
    sites = {n: listed(np.mean(each, 0), np.std(each, 0)) for n, each in draws.items()}
    return {"seconds": round(seconds, 2), "sites": sites}


def listed(mean, deviation):
    """Moments of all elements, flat."""
    rounded = [[float(f"{x:.9g}") for x in np.ravel(part)] for part in (mean, deviation)]
    return dict(zip(("mean", "deviation"), rounded, strict=True))


TASKS = {"nested": nested, "nuts": nuts}


if __name__ == "__main__":
    main()
