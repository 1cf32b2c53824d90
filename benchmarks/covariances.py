"""Gaussians with covariances, and their linear response, beside NUTS: seventeen models.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/covariances.py --task reference \
        --out docs/experiments/covariances.json

Tasks: ``reference`` draws 4 × 5000 in NumPyro, whose means and standard deviations on the
unconstrained space the others are compared with; ``fit`` trains `GaussianGuide` by Newton's method
and corrects it by linear response; ``nuts`` draws 1000 after 500 of warm-up; ``diagnosis`` has
what `diagnose` finds. Each model has a process of its own; seconds are those of its processor, of
the first call, compilers included. What is measured is added to the file.
"""

import json
import re

import harness
import numpy as np
from covariances_groups import GROUPS
from covariances_models import SERIES

MODELS = SERIES | GROUPS
CHAINS, DRAWS, WARM_UP = 4, 5000, 1500
SHORT, SHORT_WARM_UP = 1000, 500
MEAN, SCALE = 0.15, (0.9, 1.1)


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --only --out",
        task=("fit", "what is measured", [*TASKS]),
        scalars=(False, "respond for scalar sites alone"),
    )
    host = "numpyro" if options.task == "reference" else options.host
    names = [name for name in MODELS if options.only in name]
    for name in names:
        try:
            task = (host, options.task, name, options.scalars)
            (found,) = harness.in_processes(measured, [task])
        except Exception as error:  # the others may still be measured
            found = {"failure": f"{type(error).__name__}: {error}"}
        report(options, host, name, found)


def report(options, host, name, found):
    """Print what was measured, and add it to the file."""
    key = options.task if options.task == "reference" else f"{host} {options.task}"
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    parts = results.setdefault(name, {"is_counted": MODELS[name]().is_counted})
    if options.task == "fit" and "reference" in parts and "sites" in found:
        found |= agreement(parts["reference"]["sites"], found.pop("sites"))
    parts[key] = found
    if options.out:
        options.out.write_text(written({name: results[name] for name in MODELS if name in results}))
    plain = {part: value for part, value in found.items() if part != "sites"}
    print(f"{name:26s} {key:14s} {json.dumps(plain, ensure_ascii=False)}", flush=True)


def written(results):
    """JSON with a line for each list of numbers."""
    text = json.dumps(results, indent=2, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def measured(host_name, task, name, scalars):
    """What a task finds of a model."""
    host, case = harness.load(host_name), MODELS[name]()
    with host.own_parameters(), host.doubles():
        data = tuple(map(host.array, case.data))
        extra = (scalars,) if task == "fit" else ()
        return TASKS[task](host, case, case.make(host), data, *extra)


def agreement(reference, sites):
    """Shares of the coordinates that agree with NUTS, and the worst of each."""
    parts = []
    for name, found in sites.items():
        mean, deviation = (np.array(reference[name][part]) for part in ("mean", "deviation"))
        difference = np.abs(np.array(found["mean"]) - mean) / deviation
        parts.append(np.stack([difference, np.array(found["deviation"]) / deviation]))
    difference, ratio = np.concatenate(parts, axis=1)
    within = (ratio > SCALE[0]) & (ratio < SCALE[1])
    return {
        "coordinates": len(ratio),
        "means": round(float((difference < MEAN).mean()), 3),
        "deviations": round(float(within.mean()), 3),
        "worst mean": round(float(difference.max()), 3),
        "ratios": [round(float(part), 3) for part in (ratio.min(), ratio.max())],
    }


# ---------------------------------------------------------------------------------------------
# Tasks


def fit(host, case, model, data, only_scalars):
    """A cold start of Newton's method, and linear response of all coordinates or of scalars."""
    options = {"method": "newton", "float64": True, "by_draws": False, "progress_bar": False}
    host.fresh()

    def train():
        return host.package.fit(model, host.package.GaussianGuide(init_scale=0.3), *data, **options)

    def respond():
        params = {} if host.NAME == "Pyro" else {"params": result.params}
        response = host.package.linear_response(model, result.guide, *data, **params)
        scalars = [name for name, shape in response.sites.items() if not shape]
        return response, {name: listed(response, name) for name in scalars}

    def respond_to_others():
        others = [name for name in response.sites if not (only_scalars or name in sites)]
        return {name: listed(response, name) for name in others}

    result, fitting = harness.clocked(train)
    (response, sites), of_scalars = harness.clocked(respond)
    others, of_others = harness.clocked(respond_to_others)
    seconds = {"fit": fitting, "response of scalars": of_scalars, "of all others": of_others}
    return {
        "loss": round(float(result.loss), 6),
        "steps": int(result.steps),
        "converged": bool(result.converged),
        "seconds": {name: round(part, 2) for name, part in seconds.items()},
        "sites": sites | others,
    }


def listed(response, name):
    """The location and the standard deviation of a site, flat."""
    parts = response.location(name), response.standard_deviation(name)
    mean, deviation = (rounded(np.asarray(part).ravel()) for part in parts)
    return {"mean": mean, "deviation": deviation}


def rounded(values):
    return [float(f"{value:.5g}") for value in values]


def nuts(host, case, model, data):
    """One chain of the framework's own sampler, as it is by default."""
    host.fresh()
    _, seconds = harness.clocked(lambda: host.one_chain(model, data, SHORT_WARM_UP, SHORT))
    return {"seconds": round(seconds, 2)}


def diagnosis(host, case, model, data):
    """What `diagnose` says of a fit and its response, by the names of its checks."""
    host.fresh()
    options = {"method": "newton", "float64": True, "progress_bar": False}
    fit = host.package.fit(model, host.package.GaussianGuide(init_scale=0.3), *data, **options)
    found = host.package.diagnose(model, fit, *data)
    checks = {part.check: [part.value, part.verdict.value] for part in found.findings}
    return {"is good": found.is_good, "checks": checks}


def reference(host, case, model, data):
    """Means and standard deviations on the unconstrained space, by NumPyro."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    settings = case.centred, case.accepted, CHAINS, WARM_UP, DRAWS
    draws, seconds = harness.clocked(lambda: host.unconstrained_draws(model, data, *settings))
    sites, mixing = {}, 1.0
    for name, values in draws.items():
        flat = values.reshape(*values.shape[:2], -1)
        mean, deviation = flat.mean((0, 1)), flat.std((0, 1))
        errors = deviation / np.sqrt(effective_sample_size(flat))
        sites[name] = dict(zip(NAMES, map(rounded, (mean, deviation, errors)), strict=True))
        mixing = max(mixing, float(np.max(split_gelman_rubin(flat))))
    return {"r_hat": round(mixing, 4), "seconds": round(seconds, 1), "sites": sites}


NAMES = "mean", "deviation", "error"
TASKS = {"fit": fit, "nuts": nuts, "reference": reference, "diagnosis": diagnosis}


if __name__ == "__main__":
    main()
