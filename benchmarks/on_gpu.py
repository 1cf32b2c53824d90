"""Losses, gradients, fits and predictions on a GPU: equal to the processor's? And how long?

    python benchmarks/on_gpu.py [--host numpyro] [--only tanh] [--out gpu.json] [--no-times]

Every case is evaluated on the processor, then with the same parameters on the GPU. What the two
differ by is relative to the largest entry. Draws are other numbers on a GPU in Pyro: what is drawn
is compared by the mean of some losses, in standard errors. Times are those of a loss with its
gradients, on either device, against the host's sampled ELBO there.
"""

import importlib
import sys
import time
import traceback
from collections import namedtuple
from functools import partial

import harness
import models
import numpy as np

LARGE = (784, 400, 400, 10)
DRAWS = 64
LIMITS = {"float32": 2e-4, "float64": 1e-9}
X = np.random.default_rng(0).normal(size=(64, 13))
Y, CLASSES, COUNTS = X[:, 0] + 0.1 * X[:, 1], np.arange(64) % 5, np.arange(64) % 4
GROUPS = np.arange(64) % 8
# What makes a model, its data, a guide and an objective, all made on the device that is asked; and
# how many losses are taken: several where the loss has noise.
Case = namedtuple("Case", "model y guide objective losses", defaults=[1])


def counts(host, x, y=None):
    """Counts with an overdispersion that is not known."""
    rate = host.np.exp(0.3 * models.linear(host)(x))
    shape = host.sample("shape", host.dist.LogNormal(0.0, 0.5))
    with host.plate("data", len(x)):
        host.sample("obs", host.dist.GammaPoisson(shape, shape / rate), obs=y)


def slopes(host, x, y=None):
    """Intercepts and slopes of groups with a common covariance."""
    prior = host.dist.LogNormal(0.0, 0.5).expand([2]).to_event(1)
    factor = host.sample("factor", host.dist.LKJCholesky(2, 1.5))
    scale_tril = host.sample("scales", prior)[:, None] * factor
    groups = host.array(GROUPS)
    with host.plate("groups", 8):
        normal = host.dist.MultivariateNormal(host.np.zeros(2), scale_tril=scale_tril)
        both = host.sample("both", normal)
    with host.plate("data", len(x)):
        mean = both[groups, 0] + both[groups, 1] * x[:, 0]
        host.sample("obs", host.dist.Normal(mean, 1.0), obs=y)


def cases(host):
    """What is compared: activations, guides, objectives, likelihoods."""
    package, autoguide = host.package, host.infer.autoguide
    elbo, energy, renyi = package.DeterministicELBO, package.BBAlphaELBO, package.RenyiELBO
    mean_field, full = package.DVIGuide, elbo()

    def net(activation, outputs=1, family="Normal"):
        network = lambda: host.network((13, 8, 8, outputs), host.activation(activation))  # noqa: E731
        return lambda: models.observed(host, network(), family)

    relu = net("relu")
    regression = lambda: models.regression_by(host, models.linear(host))  # noqa: E731
    activations = "relu", "tanh", "gelu", "softplus", "sigmoid"
    return {
        **{name: Case(net(name), Y, mean_field, full) for name in activations},
        "tridiagonal": Case(relu, Y, package.TridiagonalGuide, full),
        "dropout": Case(relu, Y, package.MCDropoutGuide, full),
        "AutoNormal": Case(relu, Y, autoguide.AutoNormal, full),
        "AutoMultivariateNormal": Case(relu, Y, autoguide.AutoMultivariateNormal, full),
        "diagonal": Case(relu, Y, mean_field, elbo(covariance="diagonal")),
        "sampled": Case(relu, Y, mean_field, elbo(propagation="sampled"), DRAWS),
        "BB-α": Case(relu, Y, mean_field, energy(0.5)),
        "BB-α sampled": Case(
            relu, Y, mean_field, energy(0.5, propagation="sampled", num_particles=4), DRAWS
        ),
        "Rényi": Case(relu, Y, mean_field, renyi(0.5), DRAWS),
        "two heads": Case(net("relu", 2, "heteroscedastic"), Y, mean_field, full),
        "classifier": Case(net("relu", 5, "Categorical"), CLASSES, mean_field, full),
        "regression": Case(regression, Y, mean_field, full),
        "counts": Case(lambda: partial(counts, host), COUNTS, mean_field, full),
        "varying slopes": Case(lambda: partial(slopes, host), Y, mean_field, full),
    }


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --only --out",
        no_times=(False, "compare only"),
        gpu=("cuda", "name of the second device"),
        workers=(2, "processes that compare"),
    )
    host = harness.load(options.host)
    device = importlib.import_module(f"on_gpu_{options.host}")
    machine = harness.described(options.host) | {"gpu": device.described(options.gpu)}
    content = {"of": machine, "differences": {}}
    tasks = [(options, name) for name in cases(host) if options.only in name]
    for part in harness.in_processes(compared, tasks, options.workers):
        content["differences"] |= part
    if not options.no_times:
        content["times"] = list(timed(host, device, options))
    harness.write(options.out, content)
    failed = [title for title, found in content["differences"].items() if exceeds(title, found)]
    if failed:
        sys.exit(f"not equal, or failed: {', '.join(failed)}")


def compared(options, name):
    """Differences of one case in both precisions."""
    host, found = harness.load(options.host), {}
    device = importlib.import_module(f"on_gpu_{options.host}")
    for precision in LIMITS:
        title = f"{name}, {precision}"
        try:
            found[title] = one(device, cases(host)[name], precision, options.gpu)
        except Exception as error:
            traceback.print_exc(limit=-4)
            found[title] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        bad = "!" if exceeds(title, found[title]) else ""
        print(f"{title:32s} {found[title]} {bad}", flush=True)
    return found


def exceeds(title, found):
    """Standard errors may be five, other differences the limit; a NaN is too large."""
    limit = LIMITS[title.split(", ")[-1]]
    limits = {name: 5.0 if name == "standard errors" else limit for name in found}
    return "error" in found or not all(found[name] < limits[name] for name in found)


def one(device, case, precision, gpu):
    """What a loss, its gradients and the predictions after some steps differ by."""
    here = device.evaluated(case, X, precision, "cpu", None)
    there = device.evaluated(case, X, precision, gpu, here.parameters)
    if case.losses > 1:
        spread = np.sqrt((here.losses.var() + there.losses.var()) / case.losses)
        return {"standard errors": abs(here.losses.mean() - there.losses.mean()) / spread}
    return {
        "loss": relative(here.losses, there.losses),
        "gradients": max(relative(g, there.gradients[n]) for n, g in here.gradients.items()),
        "mean": relative(here.mean, there.mean),
        "variance": relative(here.variance, there.variance),
    }


def relative(here, there):
    """The largest difference, of the largest entry."""
    return float(np.max(np.abs(here - there)) / max(float(np.max(np.abs(here))), 1e-12))


def timed(host, device, options):
    """Seconds of a loss with its gradients by contender, model and device."""
    reference = "Trace_ELBO + AutoNormal"
    diagonal = [reference, "diagonal", *["diagonal, compiled"] * (host.NAME == "Pyro")]
    both = [reference, "full", "diagonal", *["full, compiled"] * (host.NAME == "Pyro")]
    rows = (  # contenders, and repeats on the GPU
        ("13-50-1, 64 rows", small, both, 50),
        ("784-400-400-10, 128 rows", partial(classifier, 128), diagonal, 20),
        ("784-400-400-10, 8192 rows", partial(classifier, 8192), diagonal, 10),
        ("regression, 20 covariates, 10⁶ rows", many_rows, [reference, "full"], 10),
    )
    for title, make, contenders, repeats in rows:
        for place in ("cpu", options.gpu) if options.only in title else ():
            with device.on(place, "float32"):
                (model, data), steps = make(host), {}
                for name, (step, first) in models.steps(host, contenders, model, data).items():
                    steps[name] = device.synchronised(step)
                    print(f"{title}, {place}, {name}: first {first:.1f} s", flush=True)
                found = harness.timed(steps, 3 if place == "cpu" else repeats, time.perf_counter)
            seconds = {name: getattr(part, host.BY) for name, part in found.items()}
            row = {"model": title, "device": place, "seconds": seconds}
            print(row, flush=True)
            yield row


def small(host):
    data = host.array(X.astype("f")), host.array(Y.astype("f"))
    return models.observed(host, host.network((13, 50, 1)), "Normal"), data


def classifier(rows, host):
    data = models.images(host, rows, LARGE[0])
    return models.observed(host, host.network(LARGE), "Categorical"), data


def many_rows(host):
    x = np.random.default_rng(0).normal(size=(10**6, 20)).astype("f")
    return models.regression_by(host, models.linear(host)), (host.array(x), host.array(x[:, 0]))


if __name__ == "__main__":
    main()
