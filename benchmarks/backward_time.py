"""Time and memory of a step by the three covariances: diagonal, backward, full.

    OMP_NUM_THREADS=1 python benchmarks/backward_time.py [--host numpyro] [--check] [--out FILE]

A step is one loss with its gradients, of 13-d-2 to 13-d-d-d-2 networks with a mean and a log
variance on batches of 64 (one also of 256), and of a 784-400-400-10 classifier on batches of 128.
Each covariance and the diagonal run in turn in one process; ratios to the diagonal are medians over
the repeats.
"""

import time
from dataclasses import asdict, dataclass

import harness
import models
import numpy as np
from harness import COMPILED

WIDTHS, DEPTHS, BATCH = (50, 200, 800), (1, 2, 3), 64
CLASSIFIER, IMAGES = (784, 400, 400, 10), 128
DIAGONAL, BACKWARD, FULL = "diagonal", "backward", "full"
SECONDS, FEWEST, MOST = 10.0, 5, 400  # that two modes take in turn, and their repeats
CERTAIN = 1.3  # what the products alone say, (3 + K) / 3, may be exceeded by so much
EAGER = {"pyro": 1.5, "numpyro": 1.0}  # and by so much more where nothing is compiled


@dataclass
class Row:
    """What was measured of one network.

    Args:
        network: its widths.
        batch: rows of a step.
        asked: K, the numbers of a row of which the covariance is asked for.
        milliseconds: median of the repeats by mode.
        ratios: to the diagonal step, compiled where the mode is.
        bytes: that a step needs beside its arguments, by mode.
    """

    network: str
    batch: int
    asked: int
    milliseconds: dict[str, float]
    ratios: dict[str, float]
    bytes: dict[str, int]

    def limits(self, host: str) -> dict[str, float]:
        """Largest ratios that are allowed, of two and more hidden layers."""
        if self.network.count("-") < 3:
            return {}
        limit = (3 + self.asked) / 3 * CERTAIN
        found = {BACKWARD: limit * EAGER[host], BACKWARD + COMPILED: limit}
        if FULL in self.ratios and "-200-" in self.network:
            found[BACKWARD] = min(found[BACKWARD], 0.1 * self.ratios[FULL])
        return {name: limit for name, limit in found.items() if name in self.ratios}

    def slow(self, host: str) -> list[str]:
        """The modes that are slower than allowed."""
        limits = self.limits(host).items()
        over = [(mode, limit) for mode, limit in limits if self.ratios[mode] > limit]
        return [f"{self.network}: {mode} {self.ratios[mode]:.2f} > {x:.2f}" for mode, x in over]

    def __str__(self) -> str:
        rows = (
            f"{mode:28s} {value:9.3f} ms {self.ratios[mode]:7.2f} {self.bytes[mode] / 1e6:8.1f} MB"
            for mode, value in self.milliseconds.items()
        )
        return "\n".join([f"{self.network}, batch {self.batch}", *rows])


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --check --only --out --no-compiled",
        threads=(1, "of the host"),
        no_full=(False, "leave covariance='full' out"),
    )

    def content(options, rows):
        return harness.by_machine(options, list(map(asdict, rows)))

    def slow(rows):
        return [line for row in rows for line in row.slow(options.host)]

    harness.run(options, measured, content, slow, options.threads)


def measured(host, options):
    compiled = options.host == "pyro" and not options.no_compiled
    compile_too = [mode + COMPILED for mode in (DIAGONAL, BACKWARD) if compiled]
    modes = [DIAGONAL, BACKWARD] + [FULL] * (not options.no_full)
    cases = [((13, *[width] * depth, 2), BATCH) for depth in DEPTHS for width in WIDTHS]
    for sizes, batch in [*cases, ((13, 200, 200, 2), 4 * BATCH), (CLASSIFIER, IMAGES)]:
        name = "-".join(map(str, sizes))
        if options.only not in name:
            continue
        if sizes == CLASSIFIER:
            family, data = "Categorical", models.images(host, IMAGES, 784)
            few = [DIAGONAL, BACKWARD]
        else:
            family, data, few = "heteroscedastic", models.normals(host, batch), modes
        model = models.observed(host, host.network(sizes), family)
        made = models.steps(host, [*few, *compile_too], model, data)
        steps = {mode: step for mode, (step, _) in made.items()}
        memory = {mode: host.workspace(step) for mode, step in steps.items()}
        yield Row(name, batch, sizes[-1], *beside_diagonal(steps), memory)


def beside_diagonal(steps):
    """Medians of milliseconds, and of the ratios to the diagonal."""
    medians, ratios = {}, {}
    for mode in steps:
        reference = DIAGONAL + COMPILED if mode.endswith(COMPILED) else DIAGONAL
        if mode != reference:
            both = in_turn(steps[reference], steps[mode])
            medians |= dict(zip((reference, mode), 1e3 * np.median(both, axis=0), strict=True))
            ratios |= {reference: 1.0, mode: float(np.median(both[:, 1] / both[:, 0]))}
    return medians, ratios


def in_turn(*steps):
    """Seconds of steps in turn [repeats, steps], each after a call that fills the caches."""
    seconds, end = [], time.perf_counter() + SECONDS
    while len(seconds) < FEWEST or (time.perf_counter() < end and len(seconds) < MOST):
        seconds.append([])
        for step in steps:
            step()
            seconds[-1].append(harness.clocked(step, time.perf_counter)[1])
    return np.array(seconds)


if __name__ == "__main__":
    main()
