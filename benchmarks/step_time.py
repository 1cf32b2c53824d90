"""Time of one ELBO with its gradient: closed form against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py [--host numpyro] [--check] [--threads 2]

A 13-50-1 network on mini-batches of 64 with TraceMeanField_ELBO and AutoNormal (one sample) as the
reference; a 784-400-400-10 classifier and a LeNet of strided convolutions on batches of 128 with a
plain network's forward and backward pass as the reference. The classifier is also compared with
what no step can do without; of its ratios this alone is limited. All contenders of a table run in
turn in one process. In Pyro the minimum over the repeats is reported, since whatever disturbs a run
makes it slower; in NumPyro, where everything runs under jax.jit, the median. Compiling takes place
before and is reported apart, in NumPyro as a ratio to compiling Trace_ELBO with AutoNormal.

What no step of a diagonal ELBO can do without: of every layer whose inputs x are random with mean m
and variance v, mean m W and variance (m² + v) S + v W² are three matrix products forwards, and each
has two gradients: nine in all, where a plain network has three. The first layer has certain inputs,
x W and x² S, which need no gradients: four, where a plain network has two. For 784-400-400-10 these
are 2.4 times the multiplications of the plain network. Besides, locations and scales are read once,
and two gradients written. Nothing else is counted: no squares, no activation, no divergence, no
likelihood, so that the limit can be come near to, and not be reached.
"""

import itertools
import time
from functools import partial

import harness
import models
from harness import COMPILED, REFERENCE, Measured, Row, compared

SMALL, LARGE = "13-50-1, batch 64", "784-400-400-10, batch 128"
TWO_HEADS = "13-50-2, mean and scale, batch 64"
DRAWS, DROPOUT = "draws, 13-50-1, batch 64", "dropout, 13-50-1, batch 64"
FULL, DIAGONAL = "DeterministicELBO full", "DeterministicELBO diagonal"
SAMPLED, MEAN_FIELD = "Trace_ELBO + AutoNormal", "TraceMeanField_ELBO + DVIGuide"
BY_DRAWS, ENERGY = "DeterministicELBO sampled", "BBAlphaELBO analytic, diagonal"
PARTICLES = {count: f"BBAlphaELBO sampled, K = {count}" for count in (1, 10)}
PLAIN, LENET = "plain network", "LeNet, batch 128"
PRODUCTS, PASS = "its matrix products alone", "one pass over the weights alone"
LIMIT, LARGEST = "both", 1.25  # ratio of a step to its limit
CLASSIFIER, BATCH = (784, 400, 400, 10), 128
COMPILING = 3.0  # ratio of the times that tracing and compiling may take
LIMITS = {FULL: 1.0, DIAGONAL: 1.0, FULL + COMPILED: 0.2, DIAGONAL + COMPILED: 0.2}
PLANS = {
    "pyro": {
        "references": (REFERENCE, MEAN_FIELD),  # beside the small network
        "two_heads": False,  # whether the small network has two outputs too
        "large_reference": MEAN_FIELD,  # beside the classifier
        "activations": {"": "relu"},  # of the classifier, by what its title adds
        "share": 40,  # one of so many repeats is for the classifier
    },
    "numpyro": {
        "references": (REFERENCE, SAMPLED, MEAN_FIELD),
        "two_heads": True,
        "large_reference": SAMPLED,
        "activations": {f", {name}": name for name in ("relu", "gelu (tanh)", "gelu (erf)")},
        "share": 8,
    },
}


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --check --out --no-compiled",
        repeats=(400, "of the small network"),
        threads=(int, "PyTorch: 1 by default; XLA: all processors"),
        small_only=(False, "leave the classifier out"),
    )
    harness.run(options, rows, harness.by_title, threads=options.threads)


def rows(host, options):
    plan, repeats = PLANS[options.host], options.repeats
    compiled = [COMPILED] if options.host == "pyro" and not options.no_compiled else []
    full, diagonal, energy = ([x, *(x + c for c in compiled)] for x in (FULL, DIAGONAL, ENERGY))
    data = models.normals(host, 64)
    one = models.observed(host, host.network((13, 50, 1)), "Normal")
    small = {SMALL: one}
    if plan["two_heads"]:
        small[TWO_HEADS] = models.observed(host, host.network((13, 50, 2)), "heteroscedastic")
    for title, model in small.items():
        made = steps(host, [*plan["references"], *full, *diagonal], model, data)
        yield from beside(host, title, made, repeats, LIMITS, [FULL, DIAGONAL])
    made = steps(host, [SAMPLED, BY_DRAWS], one, data)
    yield from beside(host, DRAWS, made, repeats, {BY_DRAWS: 1.0})
    yield from dropout(host, steps(host, [*PARTICLES.values(), *energy], one, data), repeats)
    if not options.small_only:
        yield from large(host, plan, diagonal, max(3, repeats // plan["share"]))


def pair(host, name):
    """The objective and the guide of a contender."""
    elbo, energy = host.package.DeterministicELBO, host.package.BBAlphaELBO
    if name == BY_DRAWS:
        return elbo(propagation="sampled"), host.package.DVIGuide
    if name == PARTICLES[1]:  # what one particle amounts to
        return elbo(propagation="sampled"), host.package.MCDropoutGuide
    if name == PARTICLES[10]:
        sampled = energy(0.5, num_particles=10, propagation="sampled")
        return sampled, host.package.MCDropoutGuide
    if name.startswith(ENERGY):
        options = {"compiled": True} if name.endswith(COMPILED) else {}
        return energy(0.5, covariance="diagonal", **options), host.package.MCDropoutGuide
    return models.contender(host, name.removeprefix("DeterministicELBO "))


steps = partial(models.steps, pair=pair)


def beside(host, title, made, repeats, limits, quick=()):
    """Contenders beside the first one; then the compiling of those that are to be quick, beside
    that of the sampled ELBO; none in Pyro."""
    found = timed(made, repeats)
    yield from compared(title, host.BY, found, limits)
    if PRODUCTS in made:
        step = DIAGONAL + COMPILED if DIAGONAL + COMPILED in made else DIAGONAL
        parts = found[PRODUCTS], found[PASS]
        sums = (sum(getattr(part, by) for part in parts) for by in ("minimum", "median"))
        yield Row(f"limit, {title}", found[step], host.BY, Measured(LIMIT, *sums), LARGEST)
    if quick and SAMPLED in made:
        names = [SAMPLED, *(name for name in made if name not in (SAMPLED, PRODUCTS, PASS))]
        seconds = {name: Measured(name, made[name][1], made[name][1]) for name in names}
        limits = dict.fromkeys(quick, COMPILING)
        yield from compared(f"compiling, {title}", host.BY, seconds, limits)


def timed(made, repeats):
    only = {name: step for name, (step, _) in made.items()}
    return harness.timed(only, repeats, time.perf_counter)


def dropout(host, made, repeats):
    """Ten particles may take three of one; the fastest without draws half of ten particles."""
    found, fastest = timed(made, repeats), list(made)[-1]
    one, ten = (getattr(found[PARTICLES[count]], host.BY) for count in (1, 10))
    limits = {PARTICLES[10]: 3.0, fastest: 0.5 * ten / one}
    yield from compared(DROPOUT, host.BY, found, limits)


def large(host, plan, diagonal, repeats):
    """The classifier beside its limit, and the convolutions."""
    contenders, data = [plan["large_reference"], *diagonal], models.images(host, BATCH, 784)
    for suffix, name in plan["activations"].items():
        network = host.network(CLASSIFIER, host.activation(name))
        made = {PLAIN: host.plain_step(list(itertools.pairwise(CLASSIFIER)), network, data)}
        made |= steps(host, contenders, models.observed(host, network, "Categorical"), data)
        made |= without_which(host)
        yield from beside(host, LARGE + suffix, made, repeats, {}, [DIAGONAL])
    data = models.images(host, BATCH, 1, 28, 28)
    network = partial(models.convolutional, host, models.LENET)
    made = {PLAIN: host.plain_step(models.LENET, network, data)}
    made |= steps(host, contenders, models.observed(host, network, "Categorical"), data)
    yield from beside(host, LENET, made, repeats, {diagonal[-1]: 4.0}, [DIAGONAL])


def without_which(host):
    """What no step can do without, by layer: (m, m² + v, v), (W, S, W²), and gradients by its means
    and variances. The first layer has two inputs and two weights."""
    seeds, layers = iter(range(64)), []
    for place, shape in enumerate(itertools.pairwise(CLASSIFIER)):
        counts = (3, 3, 2) if place else (2, 2, 2)
        shapes = (BATCH, shape[0]), shape, (BATCH, shape[1])
        parts = zip(counts, shapes, strict=True)
        layers.append([[host.normal(next(seeds), *s) for _ in range(n)] for n, s in parts])
    return {PRODUCTS: host.timed(products, layers), PASS: host.timed(passed, layers)}


def products(layers):
    """All products of the layers, forwards and backwards."""
    found = []
    for inputs, weights, (by_mean, by_variance) in layers:
        gradients = by_mean, by_variance, by_variance
        for x, weight, gradient in zip(inputs, weights, gradients, strict=False):
            found += [x @ weight, x.T @ gradient]
            found += [gradient @ weight.T] if len(inputs) > 2 else []
    return found


def passed(layers):
    """Two arrays of the size of all weights, read and written once."""
    return [2.0 * part for _, weights, _ in layers for part in weights[:2]]


if __name__ == "__main__":
    main()
