"""Approximations of real posteriors against reference draws: means, deviations, correlations, time.

    python benchmarks/posteriordb.py DIRECTORY [--host numpyro] [--nuts] [--table FILE.md]

The directory holds a JSON file for each posterior of posteriordb, with its data and its reference.
What the library refuses stays among the rows, with its reason.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
from posteriors_models import DESIGNS, KINDS, coefficients, design_of, regression

STEPS, FIRST_RATE, LAST_RATE = 20_000, 0.05, 0.0005  # of Adam; its rate falls geometrically
CHAINS, DRAWS_OF_NUTS = 4, 1000  # warm-up and sampling each
PATIENCE = 300.0  # seconds
MEAN_FIELD, RESPONSE, NORMAL, MULTIVARIATE, NUTS = METHODS = (
    "mean field",
    "linear response",
    "AutoNormal",
    "AutoMultivariateNormal",
    "NUTS",
)
DRAWS = 40_000  # from an approximation: four times those of the reference
WORDS = 150  # characters of a reason
EXPLANATION = """\
Largest error of a mean, in reference standard deviations · median and range of the ratio of
standard deviations to the reference's (of a positive parameter: of the distance of the 5 % and 95 %
quantiles of its logarithm) · largest error of a correlation · seconds.
"""


@dataclass(frozen=True)
class Posterior:
    """A posterior, its data, and statistics of its reference draws."""

    name: str
    data: dict[str, np.ndarray]
    reference: dict[str, Any]
    program: Any
    positive: tuple[str, ...]
    of_draws: Any = lambda data, draws: draws

    @classmethod
    def read(cls, path: Path):
        stored = json.loads(path.read_text())
        data = {name: np.asarray(value, float) for name, value in stored["data"].items()}
        if path.stem in DESIGNS:
            made = design_of(path.stem, data)
            kind = partial(regression, made), ("sigma",), partial(coefficients, made)
            data = {"x": made.x, "y": made.y}
        else:
            kind = KINDS[path.stem]
        return cls(path.stem, data, stored["reference"], *kind)

    def model(self, host):
        arrays = {name: host.array(value) for name, value in self.data.items()}
        return partial(self.program, host, arrays)

    def parameters(self, draws):
        """Draws of the reference's parameters, by their names there."""
        by_name = {}
        for name, values in self.of_draws(self.data, draws).items():
            parts = {f"{name}[{i + 1}]": part for i, part in enumerate(values.T)}
            by_name |= parts if values.ndim == 2 else {name: values}
        return {name: by_name[name] for name in self.reference["parameters"]}


@dataclass(frozen=True)
class Accuracy:
    """Of an approximation.

    Args:
        errors: of the means, in reference standard deviations [parameters].
        ratios: of standard deviations to the reference's, or of positive parameters' quantiles'
            distance on the logarithmic scale [parameters].
        correlation: the largest error of one.
    """

    errors: np.ndarray
    ratios: np.ndarray
    correlation: float

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.ratios, [0.0, 0.5, 1.0])
        least = f"{low:.2f}" if low >= 0.1 else f"{low:.1g}"
        ratios = f"{middle:.2f} ({least}–{high:.2f})"
        return f"{self.errors.max():.2f} · {ratios} · {self.correlation:.2f}"


@dataclass(frozen=True)
class Attempt:
    """What a method gives (None if nothing), its seconds, and why it gives nothing, or not all."""

    value: Any = None
    seconds: float = 0.0
    reason: str = ""

    def then(self, run: Callable, patience: float = 0.0) -> Attempt:
        """Go on by a function of the value, which is waited for so many seconds; 0 for ever."""
        if self.value is None:
            return self
        start, value, reason = time.perf_counter(), None, self.reason
        try:
            with impatient(patience):
                value = run(self.value)
        except Exception as error:  # whatever the framework or the library says
            line = (str(error).splitlines() or [""])[0]
            line = line if len(line) <= WORDS else f"{line[:WORDS]}…"
            reason = f"{type(error).__name__}: {line}"
        return Attempt(value, self.seconds + time.perf_counter() - start, reason)

    def __str__(self) -> str:
        if self.value is None:
            return self.reason
        cell = f"{self.value} · {self.seconds:.1f} s"
        return f"{cell} ({self.reason})" if self.reason else cell


@contextmanager
def impatient(patience):
    """Raise when patience ends, as soon as Python runs: not within what a framework compiled."""

    def end(*_):
        raise TimeoutError(f"not waited for beyond {patience:g} s")

    before = signal.signal(signal.SIGALRM, end)
    # again and again: the framework ignores what is raised while it collects its garbage
    signal.setitimer(signal.ITIMER_REAL, patience, 1.0 if patience else 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --only directory",
        nuts=(False, "the host's NUTS beside them"),
        steps=(STEPS, "of Adam"),
        patience=(PATIENCE, "seconds for a method"),
        table=(Path, "write a table in Markdown"),
        picture=(Path, "draw the ratios of deviations"),
    )
    paths = sorted(path for path in options.directory.glob("*.json") if options.only in path.stem)
    host, rows = harness.load(options.host), {}
    for path in paths:
        host.forget()
        posterior, row = Posterior.read(path), {}
        print(posterior.name, flush=True)
        for method, attempt in attempts(host, posterior, options):
            row[method] = attempt.then(partial(compared, posterior))
            print(f"    {method:24s}{row[method]}", flush=True)
        rows[path.stem] = row
        if options.table:  # after each: a run takes half an hour
            options.table.write_text(table(rows))
    if options.picture:
        picture(rows, options.picture)


def attempts(host, posterior, options):
    """Draws by every method."""
    tried = partial(Attempt(partial(posterior.model, host)).then, patience=options.patience)
    fit = tried(partial(fitted, host))
    if fit.value is not None and not fit.value[1].converged:
        fit = replace(fit, reason=fit.value[1].reason)
    yield MEAN_FIELD, fit.then(partial(mean_field, host))
    yield RESPONSE, fit.then(partial(by_response, host), options.patience)
    for guide in (NORMAL, MULTIVARIATE):
        yield guide, tried(partial(automatic, host, guide, options.steps))
    if options.nuts:
        chains = tried(lambda make: host.nuts(make, CHAINS, DRAWS_OF_NUTS))
        if chains.value is not None and disagree(chains.value):
            chains = replace(chains, reason="its chains disagree")
        yield NUTS, chains.then(joined)


def doubled(function):
    """A function of a host, in double precision."""

    def run(host, *arguments):
        with host.doubles():
            return function(host, *arguments)

    return run


@doubled
def fitted(host, make):
    """Model and fit, by Newton's method."""
    model = make()
    return model, harness.fitted(host, model, method="newton", float64=True)


@doubled
def mean_field(host, fitted):
    return host.posterior_draws(fitted[1].guide, fitted[1].params, DRAWS)


@doubled
def by_response(host, fitted):
    model, fit = fitted
    options = {"params": fit.params, "float64": True}
    response = host.package.linear_response(model, fit.guide, **options)
    key = () if host.NAME == "Pyro" else (host.jax.random.key(1),)
    return response.sample(DRAWS, *key)


@doubled
def automatic(host, name, steps, make):
    """By a guide of the host."""
    fall = LAST_RATE / FIRST_RATE
    made = host.automatic(name, make, steps, lambda step: FIRST_RATE * fall ** (step / steps))
    return host.posterior_draws(*made, DRAWS)


def disagree(chains):
    """Whether means of chains differ by half of a standard deviation within them."""
    for name in chains[0]:
        values = np.stack([chain[name] for chain in chains])
        if np.any(np.ptp(values.mean(1), axis=0) > 0.5 * values.std(1).mean(0)):
            return True
    return False


def joined(chains):
    return {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}


def compared(posterior, draws):
    """Draws of a model's sites with the reference."""
    reference = {name: np.asarray(part) for name, part in posterior.reference.items()}
    parameters = posterior.parameters({name: np.asarray(part) for name, part in draws.items()})
    values = np.stack(list(parameters.values()))
    positive = np.array([name.split("[")[0] in posterior.positive for name in parameters])
    errors = np.abs(values.mean(1) - reference["mean"]) / reference["sd"]
    ratios = values.std(1) / reference["sd"]
    low, high = np.quantile(values[positive], [0.05, 0.95], axis=1)
    lowest, highest = (reference[f"quantile_{part}"][positive] for part in ("05", "95"))
    ratios[positive] = np.log(high / low) / np.log(highest / lowest)
    correlation = np.abs(np.corrcoef(values) - reference["correlation"]).max()
    return Accuracy(errors, ratios, float(correlation))


def table(rows):
    """In Markdown, a row for each posterior; the reason in the place of what was refused."""
    methods = [method for method in METHODS if any(method in found for found in rows.values())]
    lines = []
    for name, found in rows.items():
        cells = {method: str(found[method]).replace("|", "\\|") for method in methods}
        if cells[RESPONSE] == cells[MEAN_FIELD]:
            cells[RESPONSE] = "–"
        lines.append([name, *cells.values()])
    return f"{EXPLANATION}\n{harness.markdown(['posterior', *methods], lines)}"


def picture(rows, path):
    """Ratios of standard deviations by method, a dot for each parameter."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    known = {
        method: [
            row[method].value.ratios for row in rows.values() if row.get(method, Attempt()).value
        ]
        for method in METHODS
    }
    known = {method: np.concatenate(parts) for method, parts in known.items() if parts}
    figure, axes = pyplot.subplots(figsize=(8, 0.7 * len(known) + 1.2), layout="constrained")
    for place, ratios in enumerate(known.values()):
        heights = place + np.random.default_rng(0).uniform(-0.3, 0.3, ratios.size)
        axes.plot(ratios, heights, ".", color="#2171b5", ms=5, alpha=0.5, mew=0)
        middle = 2 * [np.median(ratios)]
        axes.plot(middle, [place - 0.4, place + 0.4], color="#d94801", lw=2)
    axes.axvline(1, color="black", lw=0.8, zorder=0)
    axes.set(xscale="log", yticks=range(len(known)), yticklabels=[*known])
    axes.set_xlabel("standard deviation / that of reference draws (a dot a parameter; the median)")
    axes.invert_yaxis()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
