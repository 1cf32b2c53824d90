"""Time of a step of every guide and objective by its defaults, on one thread.

    OMP_NUM_THREADS=1 python benchmarks/guides_speed.py [--host numpyro] [--check]

A 13-50-2 network of heteroscedastic regression on batches of 64. MC dropout is measured beside a
plain training step of torch or flax with dropout, all else beside `TraceMeanField_ELBO` with
`AutoNormal` and one draw. In Pyro a step is a loss with its gradients, in NumPyro one of 50 updates
in a scan. All run in turn in one process, in processor time; of the repeats the minimum counts in
Pyro and the median in NumPyro. `--check` fails where a ratio is above its limit.
"""

import os
from functools import partial

import harness
import models
from harness import COMPILED, REFERENCE, compared, timed

SCANNED, SIZES, DROPPED = 50, (13, 50, 2), 0.1
WHAT, LARGE = "13-50-2, batch 64", "13-50-50-2, batch 1024"
PLAIN = "a plain network with dropout"
DROPOUT, CHAIN, ENERGY = "MCDropoutGuide", "TridiagonalGuide", "BBAlphaELBO"
DIAGONAL, FULL = ", diagonal", ", full"
DENSE = "DVIGuide, 13-50-50-2, full"  # its second layer is dense, as the first one of dropout is
LARGE_DIAGONAL, LARGE_REFERENCE = f"DVIGuide, {LARGE}", f"AutoNormal, {LARGE}"
DRAWN = {count: f"DVIGuide, sampled, K = {count}" for count in (1, 10)}
QUICK = {DROPOUT + COMPILED: 3, DROPOUT + DIAGONAL + COMPILED: 0.6}
# By what is measured and its reference, the largest ratios of contenders.
GROUPS = {
    "pyro": {
        (WHAT, PLAIN): {DROPOUT: 12, DROPOUT + DIAGONAL: 6, **QUICK},
        (WHAT, DENSE): {DROPOUT + FULL: 2},
        (WHAT, REFERENCE): {"DVIGuide": 0.9, CHAIN: 2, ENERGY: 1.6, DRAWN[1]: 0.8, DRAWN[10]: 1.1},
    },
    "numpyro": {
        (WHAT, PLAIN): {DROPOUT: 6, DROPOUT + DIAGONAL: 1.5},
        (WHAT, DENSE): {DROPOUT + FULL: 2},
        (WHAT, REFERENCE): {CHAIN: 2, ENERGY: 2.5, DRAWN[1]: 1.2, DRAWN[10]: 9},
        (LARGE, LARGE_REFERENCE): {LARGE_DIAGONAL: 1.3},
    },
}


def main(arguments=None):
    repeats = (40, "of each contender")
    common = "--host --check --only --out --no-compiled"
    options, load = harness.parse(__doc__, arguments, common, repeats=repeats), os.getloadavg()

    def content(options, found):
        result = harness.by_host(options, found)
        return result | {"machine": {**result["machine"], "load": load}}

    harness.run(options, rows, content)


def rows(host, options):
    """Contenders of which the names contain ``only``, beside their references."""
    only, data = options.only, models.normals(host, 64)
    compiled = options.host == "pyro" and not options.no_compiled
    steps = {PLAIN: host.plain_dropout(SCANNED, SIZES, DROPPED, data)}
    small, deep = (
        models.observed(host, host.network(sizes), "heteroscedastic")
        for sizes in (SIZES, (13, 50, 50, 2))
    )
    for name, pair in contenders(host, compiled).items():
        dense = name == DENSE and only in DROPOUT + FULL
        if only in name or name == REFERENCE or dense:
            steps[name] = step_of(host, pair, deep if name == DENSE else small, data)
    found = timed(steps, options.repeats)
    if options.host == "numpyro" and only in LARGE_DIAGONAL:
        found |= timed(large(host, deep), options.repeats)
    for (what, reference), limits in GROUPS[options.host].items():
        beside = {name: found[name] for name in (reference, *limits) if name in found}
        if reference in beside:
            yield from compared(f"{what}, beside {reference}", host.BY, beside, limits)


def large(host, model):
    """A step of a large batch by diagonal covariance, and by one draw of the weights."""
    data, (elbo, guide) = models.normals(host, 1024), models.contender(host, REFERENCE)
    start = partial(guide, init_loc_fn=host.infer.init_to_median)  # scales overflow at others
    pairs = {LARGE_REFERENCE: (elbo, start), LARGE_DIAGONAL: models.contender(host, "diagonal")}
    return {name: step_of(host, pair, model, data) for name, pair in pairs.items()}


def contenders(host, compiled):
    """Objectives and guides by name; where none is named, covariances are the guide's default."""
    package = host.package
    elbo, dropout, mean_field = package.DeterministicELBO, package.MCDropoutGuide, package.DVIGuide
    result = {
        REFERENCE: models.contender(host, REFERENCE),
        "DVIGuide": (elbo(), mean_field),
        DROPOUT: (elbo(), dropout),
        DROPOUT + DIAGONAL: (elbo(covariance="diagonal"), dropout),
        DROPOUT + FULL: (elbo(covariance="full"), dropout),
        DENSE: (elbo(), mean_field),
        CHAIN: (elbo(), package.TridiagonalGuide),
        ENERGY: (package.BBAlphaELBO(0.5), mean_field),
    }
    for count, name in DRAWN.items():
        result[name] = elbo(propagation="sampled", num_particles=count), mean_field
    if compiled:
        diagonal = elbo(covariance="diagonal", compiled=True)
        result[DROPOUT + COMPILED] = elbo(compiled=True), dropout
        result[DROPOUT + DIAGONAL + COMPILED] = diagonal, dropout
    return result


def step_of(host, pair, model, data):
    """A loss with its gradients in Pyro, some updates in NumPyro."""
    numpyro = host.NAME == "NumPyro"
    return (partial(host.updates, SCANNED) if numpyro else host.elbo_step)(*pair, model, data)[0]


if __name__ == "__main__":
    main()
