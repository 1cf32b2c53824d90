"""Seconds and memory of nested inference for thousands of local latents.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_size.py --host numpyro \
        --out docs/experiments/nested_size.json

Hierarchies of groups with five rows each, and a random walk by a factor of its differences. Each
has a process of its own; seconds are those of its processor, compilers included, of the first call;
memory is what its resident set grows by.
"""

import json
import resource

import harness
import numpy as np
from covariances import written
from covariances_models import logistic, observed, random

SIZES, ROWS = (2500, 5000, 10_000), 5


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --only --out")
    for size in reversed(SIZES):
        for name in CASES:
            if options.only in name:
                (found,) = harness.in_processes(measured, [(options.host, name, size)])
                report(options.out, name, f"{options.host} {size}", found)


def report(path, name, key, found):
    """Print what was measured, and add it to the file."""
    print(f"{name:20s} {key:14s} {json.dumps(found, ensure_ascii=False)}", flush=True)
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(name, {})[key] = found
        path.write_text(written({name: known[name] for name in CASES if name in known}))


def measured(host_name, name, size):
    """Seconds, memory and evidence of a first call."""
    host = harness.load(host_name)
    make, data = CASES[name](size)
    with host.own_parameters(), host.doubles():
        data = [*map(host.array, data)]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = make(host)
        posterior, seconds = harness.clocked(lambda: host.package.nested(model, *data))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": round(seconds, 1),
        "mebibytes": round((after - before) / 1024),
        "log evidence": round(float(posterior.log_evidence), 3),
        "error of the evidence": round(float(posterior.log_evidence_error), 4),
    }


def hierarchy(kind, groups):
    """Groups with intercepts of their own and a covariate."""
    generator = random(41)
    x = generator.normal(size=(groups, ROWS))
    predictor = -0.5 + 0.8 * x + 0.7 * generator.normal(size=(groups, 1))
    if kind == "binary":
        y = (generator.random(x.shape) < logistic(predictor)).astype(float)
    else:
        y = generator.poisson(np.exp(predictor)).astype(float)

    def make(host):
        dist = host.dist

        def model(x, group, y):
            intercept = host.sample("intercept", dist.Normal(0.0, 5.0))
            slope = host.sample("slope", dist.Normal(0.0, 5.0))
            spread = host.sample("spread", dist.HalfNormal(1.0))
            with host.plate("groups", groups):
                effect = host.sample("effect", dist.Normal(0.0, spread))
            predictor = intercept + slope * x + effect[group]
            if kind == "binary":
                observed(host, dist.Bernoulli(logits=predictor), y)
            else:
                observed(host, dist.Poisson(host.np.exp(predictor)), y)

        return model

    return make, (x.ravel(), np.repeat(np.arange(groups), ROWS), y.ravel())


def walk(steps):
    """Counts whose log rate is a random walk, by a factor of its differences."""
    generator = random(42)
    path = np.cumsum(0.05 * generator.normal(size=steps))
    y = generator.poisson(np.exp(0.8 + path - path.mean())).astype(float)

    def make(host):
        dist = host.dist

        def model(y):
            step = host.sample("step", dist.HalfNormal(0.2))
            flat = dist.ImproperUniform(dist.constraints.real_vector, (), (steps,))
            path = host.sample("path", flat)
            host.factor("first", dist.Normal(0.0, 2.0).log_prob(path[0]))
            host.factor("steps", dist.Normal(0.0, step).log_prob(path[1:] - path[:-1]).sum())
            observed(host, dist.Poisson(host.np.exp(path)), y)

        return model

    return make, (y,)


CASES = {
    "Poisson intercepts": lambda size: hierarchy("counts", size),
    "binary intercepts": lambda size: hierarchy("binary", size),
    "walk of counts": walk,
}


if __name__ == "__main__":
    main()
