"""Nested inference beside references that `nested_references` has, and beside NUTS' seconds.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested.py --host numpyro \
        --out docs/experiments/nested.json

Tasks: ``fit`` runs `nested` twice, so that its second seconds have nothing to compile; ``nuts``
draws 1000 after 500 of warm-up, twice where the framework compiles, and has no result beyond
``--limit`` seconds. Each model has a process of its own; seconds are those of its processor,
compilers included. What is measured is added to the file.
"""

import json
import signal
from contextlib import contextmanager
from pathlib import Path

import harness
import numpy as np
from covariances import SHORT, SHORT_WARM_UP, written
from nested_descriptions import described
from nested_models import MODELS

REFERENCES = Path(__file__).parents[1] / "docs" / "experiments" / "nested_references.json"
OF_HYPERPARAMETERS, OF_EVIDENCE, OF_LATENTS = 0.005, 0.05, 0.02  # what acceptance asks


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --only --out --check",
        task=("fit", "what is measured", [*TASKS]),
        limit=(1200.0, "seconds of the processor for the chains of a model"),
    )
    missed = []
    for name in MODELS:
        if options.only not in name:
            continue
        try:
            task = (options.host, options.task, name, options.limit)
            (found,) = harness.in_processes(measured, [task])
        except Exception as error:  # the others may still be measured
            found = {"failure": f"{type(error).__name__}: {error}"}
        report(options.out, name, f"{options.host} {options.task}", found)
        missed += [name] * (not found.get("is accepted", "failure" not in found))
    if options.check and missed:
        raise SystemExit(f"not within the limits: {', '.join(missed)}")


def report(path, name, key, found):
    """Print what was measured, and add it to the file."""
    print(f"{name:30s} {key:12s} {json.dumps(found, ensure_ascii=False)}", flush=True)
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(name, {})[key] = found
        path.write_text(written({name: known[name] for name in MODELS if name in known}))


def measured(host_name, task, name, limit):
    """What a task finds of a model."""
    host, case = harness.load(host_name), MODELS[name]()
    with host.own_parameters(), host.doubles():
        data = tuple(map(host.array, case.data))
        return TASKS[task](host, name, case, data, limit)


def fit(host, name, case, data, _):
    """Errors of hyperparameters, of the evidence and of latent elements; seconds."""
    model, reference = case.make(host), json.loads(REFERENCES.read_text())[name]
    host.fresh()
    posterior, first = harness.clocked(lambda: host.package.nested(model, *data))
    _, second = harness.clocked(lambda: host.package.nested(model, *data))
    known = described(name, case).over
    scales = {
        site: variation(posterior.marginal(site), part, known[site].value)
        for site, part in reference["hyperparameters"].items()
    }
    elements = {
        title: of_element(posterior, reference["elements"][title], site, place)
        for title, site, place in case.listed()
    }
    error = float(posterior.log_evidence) - reference["log evidence"]
    latent = max(part["total variation"] for part in elements.values())
    return {
        "is accepted": max(scales.values()) <= OF_HYPERPARAMETERS
        and abs(error) <= OF_EVIDENCE
        and latent <= OF_LATENTS,
        "total variation": scales,
        "evidence": round(error, 4),
        "error of the evidence": round(float(posterior.log_evidence_error), 4),
        "elements": elements,
        "seconds": {"first": round(first, 2), "second": round(second, 2)},
    }


def variation(marginal, reference, value):
    """Total variation of a hyperparameter's marginal, by cells of the reference's table."""
    return between(marginal.cdf(value(np.array(reference["points"]))), reference["cdf"])


def of_element(posterior, reference, site, place):
    """Total variation of an element, and its moments' distance, in standard deviations."""
    marginal = posterior.marginal(site)
    only = (lambda values: values) if place is None else (lambda values: values[..., place])
    points = np.array(reference["points"])
    if place is not None:
        points = points[:, None]  # beside all elements of the site
    mean, deviation = only(marginal.mean), only(marginal.standard_deviation)
    return {
        "total variation": between(only(marginal.cdf(points)), reference["cdf"]),
        "mean": round(float(mean - reference["mean"]) / reference["deviation"], 4),
        "deviation": round(float(deviation) / reference["deviation"], 4),
    }


def between(found, reference):
    """Half the sum of differences of cells' masses, those beyond the table included."""
    found, reference = (
        np.diff(np.concatenate([[0.0], np.asarray(part), [1.0]])) for part in (found, reference)
    )
    return round(float(0.5 * np.abs(found - reference).sum()), 5)


def nuts(host, name, case, data, limit):
    """One chain of the framework's own sampler, as it is by default: its hyperparameters, seconds.

    Pyro compiles nothing: its second chain would be as long as the first.
    """
    host.fresh()
    model = case.make(host)
    run = lambda: host.one_chain(model, data, SHORT_WARM_UP, SHORT)  # noqa: E731
    try:
        with interrupted(limit):
            draws, first = harness.clocked(run)
            second = harness.clocked(run)[1] if host.NAME == "NumPyro" else first
    except TimeoutError:
        return {"more than": limit}
    reference, known = json.loads(REFERENCES.read_text())[name], described(name, case).over
    return {
        "hyperparameters": {
            site: of_draws(np.asarray(draws[site]), part, known[site].value)
            for site, part in reference["hyperparameters"].items()
        },
        "seconds": {"first": round(first, 2), "second": round(second, 2)},
    }


@contextmanager
def interrupted(seconds):
    """Stop Python, when it is next at work, after so many seconds of the processor."""

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def of_draws(draws, reference, value):
    """Distance of draws' moments, in standard deviations of the reference, on its scale."""
    points, masses = np.array(reference["points"]), np.diff(reference["cdf"])
    draws = np.interp(draws, value(points), points)
    middles = 0.5 * (points[1:] + points[:-1])
    mean = middles @ masses / masses.sum()
    deviation = np.sqrt((middles - mean) ** 2 @ masses / masses.sum())
    return {
        "mean": round(float(draws.mean() - mean) / float(deviation), 3),
        "deviation": round(float(draws.std() / deviation), 3),
    }


TASKS = {"fit": fit, "nuts": nuts}


if __name__ == "__main__":
    main()
