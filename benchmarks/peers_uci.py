"""Other tools beside the library on four UCI sets: seconds, and test log-likelihood of ten splits.

    OMP_NUM_THREADS=1 PYTHONPATH=. PEERS/bin/python benchmarks/peers_uci.py --data DIR \\
        --out docs/experiments/peers_uci.json

PEERS is the environment of `peers.py`; DIR holds uci/NAME.npz, as for examples/uci_regression.py.
One hidden layer of 50 ReLUs gives the mean and the log variance of y, with weights N(0, 1): the
network of the README, for every tool that takes a model. laplace-torch takes none: it has one noise
for all rows. All contenders run in one process, one split after the other. Seconds are those of the
processor, of training with all that leads to the posterior; "warm" is the second split and later
ones, without compiling. --slow N runs `SLOW` ones on the first N splits only. --first N adds
splits from N on to the file, in a process that runs split N - 1 before without keeping it.

--check fails where the library is below one of `RIVALS` by more than one standard error of the
paired difference, or takes more than 1.5 times the seconds of laplace-torch once warm.
"""

import json
import os
import platform
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import harness
import numpy as np
from peers import Split, contender
from regression import standardise
from uci_regression import load

SETS, SPLITS = ["yacht", "boston", "energy", "concrete"], 10
LONGEST = 1.5  # times laplace-torch's seconds
PACKAGES = ("torch", "pyro-ppl", "jax", "numpyro", "tyxe", "laplace-torch", "bayesian-torch")
LAPLACE = "laplace-torch"
OURS = ("this library, NumPyro", "this library, Pyro", "this library, Pyro compiled")
RIVALS = (LAPLACE, "bayesian-torch", "TyXe", "AutoNormal, NumPyro")
CONTENDERS = {  # as in peers.TASKS
    "this library, NumPyro": "peers_hosts.ours:numpyro",
    "this library, Pyro": "peers_hosts.ours:pyro",
    "this library, Pyro compiled": "peers_hosts.compiled:pyro",
    LAPLACE: "peers_others.laplace",
    "bayesian-torch": "peers_others.bayesian",
    "TyXe": "peers_others.tyxe",
    "AutoNormal, NumPyro": "peers_hosts.autonormal_numpyro:numpyro",
    "deep ensemble of five, torch": "peers_others.ensemble",
    "NUTS, NumPyro": "peers_hosts.nuts:numpyro",
}
SLOW = ("this library, Pyro", "TyXe", "NUTS, NumPyro")


def measure(results, options, number, runs):
    """Add a split of each set by all contenders, one after the other."""
    for name in options.sets:
        arrays = load(options.data, name)
        made = standardise(arrays["X"], arrays["y"], arrays["test_mask"][number])
        split = Split(*vars(made).values(), number)
        for one, run in runs.items():
            if one in SLOW and number >= options.slow:
                continue
            found = run(split)
            density = float(np.mean(np.asarray(found.log_density))) - np.log(split.scale)
            numbers = found.seconds, float(density), os.getloadavg()[0]
            mine = results["sets"].setdefault(name, {}).setdefault(one, {})
            for key, value in zip(("seconds", "log_likelihood", "load"), numbers, strict=True):
                mine.setdefault(key, []).append(round(value, 4))
            print(name, number, one, *(f"{value:.3f}" for value in numbers), flush=True)


def difference(ours, other):
    """The mean of paired differences on the splits of both, and its standard error; a split where
    another tool diverged is left out."""
    gaps = np.subtract(*zip(*zip(ours, other, strict=False), strict=True))
    gaps = gaps[np.isfinite(gaps) | ~np.isfinite(ours[: len(gaps)])]
    error = gaps.std(ddof=1) / len(gaps) ** 0.5 if len(gaps) > 1 else np.nan
    return float(gaps.mean()), float(error)


def failures(sets):
    """What does not hold, in words."""
    lines = []
    for name, found in sets.items():
        warm = {one: np.mean(mine["seconds"][1:] or mine["seconds"]) for one, mine in found.items()}
        for ours in OURS:
            for rival in RIVALS:
                gap, error = difference(*(found[one]["log_likelihood"] for one in (ours, rival)))
                if not gap >= -error:  # NaN, where one split has no error, is a failure
                    lines.append(f"{name}: {ours} less {rival} is {gap:.3f} ± {error:.3f}")
            ratio = warm[ours] / warm[LAPLACE]
            if ratio > LONGEST:
                lines.append(f"{name}: {ours} takes {ratio:.1f} times the seconds of {LAPLACE}")
    return lines


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--only --out --check",
        data=(..., "folder that holds uci/*.npz"),
        sets=(SETS, "names", SETS),
        splits=(SPLITS, "of each set"),
        first=(0, "split to go on with"),
        slow=(SPLITS, "splits of the slow ones"),
    )
    results = {
        "processor": harness.described("pyro"),
        "python": platform.python_version(),
        "versions": {package: harness.version_of(package) for package in PACKAGES},
        "sets": {},
    }
    # all are imported at once: XLA compiles anew after torch is imported
    runs = {name: contender(where, "uci") for name, where in CONTENDERS.items()}
    runs = {name: run for name, run in runs.items() if options.only in name}
    if options.first:
        measure({"sets": {}}, options, options.first - 1, runs)  # compiles
        results = json.loads(Path(options.out).read_text())
    for number in range(options.first, options.splits):
        measure(results, options, number, runs)
        harness.write(options.out, results)
    failed = failures(results["sets"]) if not options.only else []
    print("\n".join(failed))
    if options.check and failed:
        raise SystemExit(json.dumps(failed))


if __name__ == "__main__":
    main()
