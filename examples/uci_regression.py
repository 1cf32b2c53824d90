"""Test log-likelihood on the UCI regression sets: deterministic against Monte Carlo inference.

    python examples/uci_regression.py --data DIR --set boston --method dvi --out boston.json

DIR holds uci/NAME.npz with arrays X [N, D], y [N] and test_mask [splits, N]. The network has one
hidden layer of 50 ReLUs (100 for protein), a heteroscedastic Normal likelihood and an
empirical-Bayes prior on every set of weights, as in Wu et al. 2019, section 5. All sets share
every setting.

dvi    closed-form ELBO, covariances of the outputs included.
ddvi   the same with independent components. One hidden layer on certain inputs has independent
       units anyway, and the covariance of location and log variance is kept: here both agree.
mcvi   the same guide with the host's TraceMeanField_ELBO and 10 samples a step; the KL divergence
       is the same closed form. Test scores average 1000 posterior samples.

--family takes another posterior: tridiagonal ones, which examples/uci_tridiagonal.py compares.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from regression import FAMILIES, Schedule, Split, scores, standardise
from tqdm import tqdm

METHODS = ("dvi", "ddvi", "mcvi")
HIDDEN = {"protein": 100}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    mask = load(options.data, options.set)["test_mask"]
    options.steps = options.steps or number_of_steps(mask, options.batch_size)
    last = len(mask) if options.splits is None else options.first_split + options.splits
    splits = range(options.first_split, min(last, len(mask)))
    jobs = [(options, split) for split in splits]
    bar = tqdm(run_all(run, jobs, options.workers), total=len(jobs), desc=options.set, unit="split")
    results = []
    for split, log_likelihood, rmse, _ in bar:
        tqdm.write(f"split {split:2d}  log-likelihood {log_likelihood:8.4f}  RMSE {rmse:.5g}")
        results.append((split, log_likelihood, rmse))
    report(options, sorted(results))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/*.npz")
    parser.add_argument("--set", required=True, help="name of a set, such as boston")
    parser.add_argument("--method", choices=METHODS, default="dvi")
    parser.add_argument("--family", choices=list(FAMILIES), default="mean field")
    parser.add_argument("--hidden", type=int, help="hidden units (50, of protein 100)")
    parser.add_argument("--kl-warm-up", type=int, help="steps until the KL has its full weight")
    parser.add_argument("--splits", type=int, help="number of splits (all)")
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--steps", type=int, help="gradient steps (300 epochs, 12000 to 40000)")
    parser.add_argument("--batch-size", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=5e-3, help="peak (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes over the splits")
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    return parser.parse_args(arguments)


def load(data: Path, name: str) -> dict[str, np.ndarray]:
    """Arrays X, y and test_mask of a set; `data` is the folder of the sets or holds it as uci/."""
    folder = data / "uci" if (data / "uci").is_dir() else data
    path = folder / f"{name}.npz"
    if not path.is_file():
        names = sorted(file.stem for file in folder.glob("*.npz"))
        there = f"it has {', '.join(names)}" if names else "it has no .npz files"
        raise SystemExit(f"no set {name!r} in {folder}: {there}")
    with np.load(path) as arrays:
        return dict(arrays)


def run_all(run: Callable, jobs: list[tuple], workers: int) -> Iterator[Any]:
    """What each job gives, in their order, of one process or several."""
    if workers == 1:
        yield from map(run, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(run, jobs)


def run(job: tuple[argparse.Namespace, int]) -> tuple[int, float, float, dict]:
    """Train and score one split: its number, test log-likelihood and RMSE, and the groups of a
    tridiagonal posterior."""
    options, number = job
    arrays = load(options.data, options.set)
    split = standardise(arrays["X"], arrays["y"], arrays["test_mask"][number])
    return number, *fit_and_score(split, options, number)


def fit_and_score(
    split: Split, options: argparse.Namespace, number: int
) -> tuple[float, float, dict]:
    backend = importlib.import_module(f"regression_{options.backend}")
    batch_size = min(options.batch_size, len(split.x_train))
    seed = 1000 * options.seed + number
    rate, warm_up = options.learning_rate, options.kl_warm_up
    schedule = Schedule(options.steps, batch_size, rate, seed, warm_up)
    shown = False if options.workers > 1 else None  # where one process owns the terminal
    hidden = options.hidden or HIDDEN.get(options.set, 50)
    log_prob, mean, groups = backend.train_and_predict(
        split, options.method, options.family, hidden, schedule, shown
    )
    return *scores(split, log_prob, mean), groups


def number_of_steps(test_mask: np.ndarray, batch_size: int) -> int:
    """300 epochs, but neither too few for a small set nor too many on a large one."""
    rows = int((~test_mask[0]).sum())
    return min(max(300 * rows // batch_size, 12_000), 40_000)


def report(options: argparse.Namespace, results: list[tuple[int, float, float]]) -> None:
    splits, log_likelihoods, rmses = map(list, zip(*results, strict=True))
    summary = {
        **{key: value for key, value in vars(options).items() if key not in ("data", "out")},
        "splits": splits,
        "test_log_likelihood": summarise(log_likelihoods),
        "rmse": summarise(rmses),
    }
    for name in ("test_log_likelihood", "rmse"):
        mean, error = summary[name]["mean"], summary[name]["standard_error"]
        print(f"{options.set} {options.method} {name}: {mean:.4g} ± {error:.2g}")
    if options.out:
        options.out.write_text(json.dumps(summary, indent=2) + "\n")


def summarise(values: list[float]) -> dict:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "standard_error": error, "per_split": values}


def table(results: dict[str, dict], methods: Sequence[str]) -> str:
    """Test log-likelihoods, mean ± standard error over the splits, in Markdown."""
    lines = [f"| set | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, found in results.items():
        parts = (found[method]["test_log_likelihood"] for method in methods)
        cells = (f"{part['mean']:.3f} ± {part['standard_error']:.3f}" for part in parts)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(results: dict[str, dict], methods: Sequence[str], baseline: str) -> plt.Figure:
    """Gains in test log-likelihood over a baseline on the same splits, in their standard errors."""
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    compared = [name for name in methods if name != baseline]
    width = 0.75 / len(compared)
    for place, method in enumerate(compared):
        gains = [gain(found, method, baseline) for found in results.values()]
        where = np.arange(len(results)) + width * (place - (len(compared) - 1) / 2)
        axes.bar(where, [mean / error for mean, error in gains], width, label=method)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.axhspan(-1, 1, color="0.9", zorder=0)
    axes.set_xticks(range(len(results)), results)
    axes.set_ylabel(f"gain over {baseline} in standard errors")
    axes.set_yscale("symlog", linthresh=1)
    figure.legend(loc="outside lower center", ncols=len(compared))
    return figure


def gain(found: dict, method: str, baseline: str) -> tuple[float, float]:
    """Mean and standard error of the paired differences from a baseline."""
    ends = (found[name]["test_log_likelihood"]["per_split"] for name in (method, baseline))
    difference = np.subtract(*ends)
    return difference.mean(), difference.std(ddof=1) / len(difference) ** 0.5


if __name__ == "__main__":
    main()
