"""Nested inference beside nested Laplace, parts of itself, and other programs.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_peers.py \
        --out docs/experiments/nested_peers.json
    python3.12 -m venv PEERS
    PEERS/bin/pip install -r benchmarks/nested_peers_requirements.txt
    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 PEERS/bin/python benchmarks/nested_peers.py \
        --task BlackJAX INLA DADVI --out docs/experiments/nested_peers.json

Tasks: ``ours`` is `nested` in NumPyro, then the same with latent marginals as a mixture of
Gaussians alone, the same grid without correction (the ELBO), and with Laplace's approximation; of
other programs, in an environment of their own, ``BlackJAX``'s `laplace_marginal_factory` under its
NUTS, and pymc-extras' ``INLA`` and ``DADVI``. Models, data and priors are those of `nested_models`;
errors are beside `nested_references`. Each task of a model has a process of its own, whose
processor seconds are those of a first and of a second call; it is given up after `--patience`.
What is measured is added to the file.
"""

import importlib
import json
import multiprocessing
import resource
import traceback

import harness
import nested
from covariances import written
from nested_descriptions import described
from nested_models import MODELS

TASKS = {
    "ours": "nested_peers_laplace.variants",
    "BlackJAX": "nested_peers_blackjax.sampled",
    "INLA": "nested_peers_pymc.inla",
    "DADVI": "nested_peers_pymc.dadvi",
}
LONGEST = 300  # characters of a failure


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--only --out",
        task=(["ours"], "what is measured", [*TASKS]),
        patience=(600, "processor seconds after which a task is given up"),
    )
    for name in MODELS:
        for task in options.task if options.only in name else ():
            report(options.out, name, found(task, name, options.patience))


def found(task, name, patience):
    """What a process of its own finds until its time is over."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(sender, task, name, patience))
    process.start()
    sender.close()
    result = last(receiver)
    process.join()
    if result is None:
        return {task: {"failure": f"no result after {patience} s"}}
    if process.exitcode:
        result[task]["seconds"] = {"more than": patience}
    return result


def last(receiver):
    """The last of the results that a process sends, each of which has more."""
    result = None
    while True:
        try:
            result = receiver.recv()
        except EOFError:
            return result


def answer(sender, task, name, patience):
    """Send what a task finds; the system ends the process when its time is over."""
    resource.setrlimit(resource.RLIMIT_CPU, (patience, patience))
    module, function = TASKS[task].split(".")
    try:
        for part in getattr(importlib.import_module(module), function)(name):
            sender.send(part if task == "ours" else {task: part})
    except Exception as error:  # what another program cannot do is a result
        traceback.print_exc()
        sender.send({task: {"failure": f"{type(error).__name__}: {error}"[:LONGEST]}})


def report(path, name, result):
    """Print what was measured, and add it to the file."""
    for method, part in result.items():
        print(f"{name:30s} {method:20s} {json.dumps(part, ensure_ascii=False)}", flush=True)
    if path:
        known = json.loads(path.read_text()) if path.exists() else {}
        known[name] = known.get(name, {}) | result
        path.write_text(written({name: known[name] for name in MODELS if name in known}))


def reference(name):
    """Its reference, as `nested_references` has it."""
    return json.loads(nested.REFERENCES.read_text())[name]


def errors(name, case, posterior):
    """Total variation of hyperparameters, error of the evidence, and of latent elements."""
    of, known = reference(name), described(name, case).over
    return {
        "total variation": {
            site: nested.variation(posterior.marginal(site), part, known[site].value)
            for site, part in of["hyperparameters"].items()
        },
        "evidence": round(float(posterior.log_evidence) - of["log evidence"], 4),
        "elements": elements(of, case, posterior),
    }


def elements(of, case, posterior):
    """Total variation of each latent element that has a reference."""
    return {
        title: nested.of_element(posterior, of["elements"][title], site, place)["total variation"]
        for title, site, place in case.listed()
    }


def twice(function):
    """What a function returns, and the processor seconds of a first and of a second call."""
    result, first = harness.clocked(function)
    _, second = harness.clocked(function)
    return result, {"first": round(first, 2), "second": round(second, 2)}


if __name__ == "__main__":
    main()
