"""Time of one ELBO with its gradient: closed form against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py [--host numpyro] [--check] [--threads 2]

A 13-50-1 network on mini-batches of 64 with TraceMeanField_ELBO and AutoNormal (one sample) as the
reference; a 784-400-400-10 classifier and a LeNet of strided convolutions on batches of 128 with a
plain network's forward and backward pass as the reference. The classifier is also compared with
what no step can do without, see :mod:`step_limits`; of its ratios this alone is limited. All
contenders of a table run in turn in
one process. In Pyro the minimum over the repeats is reported, since whatever disturbs a run makes
it slower; in NumPyro, where everything runs under jax.jit, the median. Compiling takes place before
and is reported apart, in NumPyro as a ratio to compiling Trace_ELBO with AutoNormal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import hosts
import models
import numpy as np
from step_limits import PASS, PRODUCTS, operands, passed, products, to_limit
from timing import COMPILED, REFERENCE, Step, Table, measure, report

SMALL, LARGE = "13-50-1, batch 64", "784-400-400-10, batch 128"
TWO_HEADS = "13-50-2, mean and scale, batch 64"
DRAWS, DROPOUT = "draws, 13-50-1, batch 64", "dropout, 13-50-1, batch 64"
FULL, DIAGONAL = "DeterministicELBO full", "DeterministicELBO diagonal"
SAMPLED, MEAN_FIELD = "Trace_ELBO + AutoNormal", "TraceMeanField_ELBO + DVIGuide"
BY_DRAWS, ENERGY = "DeterministicELBO sampled", "BBAlphaELBO analytic, diagonal"
PARTICLES = {count: f"BBAlphaELBO sampled, K = {count}" for count in (1, 10)}
PLAIN = "plain network"
LENET = "LeNet, batch 128"
CLASSIFIER, BATCH = (784, 400, 400, 10), 128
COMPILING = 3.0  # ratio of the times that tracing and compiling may take


@dataclass(frozen=True)
class Plan:
    """What is measured in a host.

    Args:
        references: sampled ELBOs and their guides beside the small network.
        limits: of the small network.
        two_heads: whether it has two outputs too.
        large_reference: beside the classifier.
        activations: of the classifier, by what its title adds.
        share: one of so many repeats is for the classifier.
    """

    references: tuple[str, ...]
    limits: dict[str, float]
    two_heads: bool
    large_reference: str
    activations: dict[str, str]
    share: int


PLANS = {
    "pyro": Plan(
        (REFERENCE, MEAN_FIELD),
        {FULL: 1.0, DIAGONAL: 1.0, FULL + COMPILED: 0.2, DIAGONAL + COMPILED: 0.2},
        False,
        MEAN_FIELD,
        {"": "relu"},
        40,
    ),
    "numpyro": Plan(
        (REFERENCE, SAMPLED, MEAN_FIELD),
        {FULL: 1.0, DIAGONAL: 1.0},
        True,
        SAMPLED,
        {f", {name}": name for name in ("relu", "gelu (tanh)", "gelu (erf)")},
        8,
    ),
}
Contenders = dict[str, tuple[Any, Callable]]  # objective and guide by name
Steps = dict[str, tuple[Step, float]]  # with the seconds of compiling


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load(options.host, options.threads)
    with host.own_parameters():
        report(tables(host, options), options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--out")
    parser.add_argument("--repeats", type=int, default=400, help="of the small network (400)")
    parser.add_argument("--threads", type=int, help="PyTorch: 1 by default; XLA: all processors")
    parser.add_argument("--small-only", action="store_true", help="leave the classifier out")
    parser.add_argument("--no-compiled", action="store_true", help="Pyro: no compiled=True")
    return parser.parse_args(arguments)


def tables(host: ModuleType, options: argparse.Namespace) -> Iterator[Table]:
    plan = PLANS[options.host]
    compiled = options.host == "pyro" and not options.no_compiled
    repeats, data = options.repeats, (host.normal(0, 64, 13), host.normal(1, 64))
    model = models.regression(host, host.network((13, 50, 1)))
    small = {SMALL: model}
    if plan.two_heads:
        small[TWO_HEADS] = models.two_heads(host, host.network((13, 50, 2)))
    for title, one in small.items():
        made = made_steps(host, analytic(host, plan, compiled), one, data)
        yield timed(host, title, made, repeats, plan.limits)
        yield from compiling(title, made, [FULL, DIAGONAL])
    draws = made_steps(host, by_draws(host), model, data)
    yield timed(host, DRAWS, draws, repeats, {BY_DRAWS: 1.0})
    yield dropout(host, made_steps(host, energies(host, compiled), model, data), repeats)
    if not options.small_only:
        yield from classifiers(host, plan, compiled, max(3, repeats // plan.share))
        yield from convolutions(host, plan, compiled, max(3, repeats // plan.share))


def made_steps(host: ModuleType, contenders: Contenders, model: Callable, data: tuple) -> Steps:
    return {
        name: host.elbo_step(elbo, guide, model, data) for name, (elbo, guide) in contenders.items()
    }


def timed(
    host: ModuleType, title: str, made: Steps, repeats: int, limits: dict[str, float] | None = None
) -> Table:
    steps = {name: step for name, (step, _) in made.items()}
    return Table(title, measure(steps, repeats, host.summary), limits or {})


def compiling(title: str, made: Steps, quick: list[str]) -> Iterator[Table]:
    """Seconds of compiling, which those that are to be quick must not take long; none in Pyro."""
    if SAMPLED in made:
        alone = SAMPLED, PRODUCTS, PASS
        others = {name: seconds for name, (_, seconds) in made.items() if name not in alone}
        seconds = {SAMPLED: made[SAMPLED][1], **others}  # the reference first
        yield Table(f"compiling, {title}", seconds, dict.fromkeys(quick, COMPILING))


def closed(host: ModuleType, covariance: str, compiled: bool) -> Contenders:
    """The closed form, in Pyro also compiled."""
    name = f"DeterministicELBO {covariance}"
    result = {name: models.closed_form(host, covariance)}
    if compiled:
        result[name + COMPILED] = models.closed_form(host, covariance, compiled=True)
    return result


def analytic(host: ModuleType, plan: Plan, compiled: bool) -> Contenders:
    references = {name: models.reference(host, name) for name in plan.references}
    return references | closed(host, "full", compiled) | closed(host, "diagonal", compiled)


def by_draws(host: ModuleType) -> Contenders:
    """The host's own draws, and those by rows."""
    elbo = host.package.DeterministicELBO(propagation="sampled")
    return {SAMPLED: models.reference(host, SAMPLED), BY_DRAWS: (elbo, host.package.DVIGuide)}


def energies(host: ModuleType, compiled: bool) -> Contenders:
    """MC dropout by draws of its masks, and without."""
    energy, guide = host.package.BBAlphaELBO, host.package.MCDropoutGuide
    one = host.package.DeterministicELBO(propagation="sampled")  # what one particle amounts to
    result = {
        PARTICLES[1]: (one, guide),
        PARTICLES[10]: (energy(0.5, num_particles=10, propagation="sampled"), guide),
        ENERGY: (energy(0.5, covariance="diagonal"), guide),
    }
    if compiled:
        result[ENERGY + COMPILED] = energy(0.5, covariance="diagonal", compiled=True), guide
    return result


def dropout(host: ModuleType, made: Steps, repeats: int) -> Table:
    """Ten particles may take three of one; the fastest without draws half of ten particles."""
    table = timed(host, DROPOUT, made, repeats)
    ten = table.seconds[PARTICLES[10]] / table.seconds[PARTICLES[1]]
    fastest = ENERGY + COMPILED if ENERGY + COMPILED in made else ENERGY
    return Table(DROPOUT, table.seconds, {PARTICLES[10]: 3.0, fastest: 0.5 * ten})


def classifiers(host: ModuleType, plan: Plan, compiled: bool, repeats: int) -> Iterator[Table]:
    generator = np.random.default_rng(0)
    images = generator.random((BATCH, CLASSIFIER[0])).astype(np.float32)
    data = host.array(images), host.array(generator.integers(10, size=BATCH))
    step = DIAGONAL + COMPILED if compiled else DIAGONAL
    contenders = {plan.large_reference: models.reference(host, plan.large_reference)}
    contenders |= closed(host, "diagonal", compiled)
    for suffix, name in plan.activations.items():
        activation = host.activation(name)
        model = models.classification(host, host.network(CLASSIFIER, activation))
        made = {PLAIN: host.plain_step(CLASSIFIER, activation, data)}
        made |= made_steps(host, contenders, model, data) | without_which(host)
        table = timed(host, LARGE + suffix, made, repeats)
        yield from (table, to_limit(table.title, table.seconds, step))
        yield from compiling(table.title, made, [DIAGONAL])


def convolutions(host: ModuleType, plan: Plan, compiled: bool, repeats: int) -> Iterator[Table]:
    generator = np.random.default_rng(0)
    images = generator.random((BATCH, 1, 28, 28)).astype(np.float32)
    data = host.array(images), host.array(generator.integers(10, size=BATCH))
    contenders = {plan.large_reference: models.reference(host, plan.large_reference)}
    contenders |= closed(host, "diagonal", compiled)
    model = models.classification(host, partial(models.convolutional, host, models.LENET))
    made = {PLAIN: host.plain_convolutional(models.LENET, data)}
    made |= made_steps(host, contenders, model, data)
    step = DIAGONAL + COMPILED if compiled else DIAGONAL
    yield timed(host, LENET, made, repeats, {step: 4.0})
    yield from compiling(LENET, made, [DIAGONAL])


def without_which(host: ModuleType) -> Steps:
    """What no step can do without."""
    seeds = iter(range(64))
    normal = lambda *shape: host.normal(next(seeds), *shape)  # noqa: E731
    layers = operands(CLASSIFIER, BATCH, normal)
    return {PRODUCTS: host.timed(products, layers), PASS: host.timed(passed, layers)}


if __name__ == "__main__":
    main()
