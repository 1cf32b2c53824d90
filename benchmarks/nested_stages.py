"""Seconds of the stages of nested inference: the grid of the ELBO, and its correction.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_stages.py --host numpyro \
        --out docs/experiments/nested_stages.json

Each model has a process of its own, and the stages are those of its second call, in seconds of the
processor. The correction may double the time, or take ten times as long where local latents are
integrated by quadrature.
"""

import contextlib
import json
import time
from unittest.mock import patch

import harness
from covariances import written
from nested_models import MODELS

LIMITS = {"cumulant": 2.0, "chain": 2.0, "quadrature": 10.0}
STAGES = {
    "corrected_field": "correction",
    "local_corrections": "quadrature",
    "chain_evidence": "chain",
}


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --only --out --check")
    missed = []
    for name in MODELS:
        if options.only in name:
            (found,) = harness.in_processes(measured, [(options.host, name)])
            report(options.out, name, options.host, found)
            missed += [name] * (found["ratio"] > LIMITS[found["by"]])
    if options.check and missed:
        raise SystemExit(f"not within the limits: {', '.join(missed)}")


def report(path, name, key, found):
    """Print what was measured, and add it to the file."""
    print(f"{name:30s} {key:8s} {json.dumps(found)}", flush=True)
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(name, {})[key] = found
        path.write_text(written({name: known[name] for name in MODELS if name in known}))


def measured(host_name, name):
    """Seconds of a second call without its correction, and how much longer all takes."""
    from moment_inference.nested import inference

    host, case = harness.load(host_name), MODELS[name]()
    seconds = dict.fromkeys(STAGES.values(), 0.0)

    def watched(stage):
        function = getattr(inference, stage)

        def run(*arguments):
            start = time.process_time()
            found = function(*arguments)
            seconds[STAGES[stage]] += time.process_time() - start
            return found

        return patch.object(inference, stage, run)

    with host.own_parameters(), host.doubles():
        data, model = [*map(host.array, case.data)], case.make(host)
        host.package.nested(model, *data)
        with contextlib.ExitStack() as stack:
            for stage in STAGES:
                stack.enter_context(watched(stage))
            call = lambda: host.package.nested(model, *data)  # noqa: E731
            _, total = harness.clocked(call, time.process_time)
    grid = total - seconds["correction"]
    return {
        "grid": round(grid, 2),
        "correction": round(seconds["correction"], 2),
        "by": next((by for by in ("quadrature", "chain") if seconds[by]), "cumulant"),
        "ratio": round(total / grid, 2),
    }


if __name__ == "__main__":
    main()
