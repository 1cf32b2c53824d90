"""A Bayesian network on scikit-learn's diabetes data: closed-form against sampled inference.

    python examples/demo.py [--backend pyro | numpyro | both] [--details]

Trains the same model and the same guide for the same time, once with the ELBO in closed form and
once with the framework's sampled one, and draws the predictive intervals and both learning curves.
With ``--details`` it also compares with NUTS: in NumPyro a network, in Pyro a regression.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from regression import Run, Split, scores, standardise
from sklearn.datasets import load_diabetes


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    split = diabetes()
    names = ["pyro", "numpyro"] if options.backend == "both" else [options.backend]
    backends = [importlib.import_module(f"demo_{name}") for name in names]
    framework = {"pyro": "Pyro", "numpyro": "NumPyro"}[names[0]]
    print(
        f"scikit-learn's diabetes data: {len(split.y_train)} patients to train on, "
        f"{len(split.y_test)} unseen ones\none network in {framework}, two guides, "
        f"{options.seconds:g} s of training each",
        flush=True,
    )
    runs = list(backends[0].runs(split, options))
    summarise(runs, split)
    draw(runs, split, options.out)
    print(f"picture: {options.out}")
    if options.details:
        compare(runs, split)
        compare_with_chains(backends, split, options)


METHODS = {"DVI": "closed form", "MCVI": "by draws"}


def summarise(runs: list[Run], split: Split) -> None:
    """Scores of both runs side by side, and what the closed form says of unseen patients."""
    print("".join(f"{cell:>32s}" for cell in ["", *(METHODS[run.label] for run in runs)]))
    found = [scores(split, run.log_prob, run.mean) for run in runs]
    rows = {
        "ELBO at the end": [f"{run.elbos[-1]:.1f}" if run.elbos else "" for run in runs],
        "log-likelihood of the unseen": [f"{score:.3f}" for score, _ in found],
        "error of the mean (RMSE)": [f"{error:.1f}" for _, error in found],
    }
    for title, cells in rows.items():
        print("".join(f"{cell:>32s}" for cell in [title, *cells]))
    run = runs[0]
    inside = np.abs(split.y_test - run.mean) < 1.96 * np.sqrt(run.variance)
    print(
        f"95 % intervals of the closed form hold {inside.sum()} of {len(inside)} unseen patients; "
        f"{run.epistemic_variance.mean() / run.variance.mean():.0%} of the variance is what the "
        "weights do not know"
    )


def compare_with_chains(backends: list, split: Split, options: argparse.Namespace) -> None:
    """Tables and one picture, a row for each fit."""
    found = {}
    for backend in backends:
        for title, comparison in backend.comparisons(split, options):
            print(f"\n{title}\n{comparison}", flush=True)
            found[title] = comparison
    figure, axes = plt.subplots(
        len(found), 3, figsize=(13, 3.6 * len(found)), layout="constrained", squeeze=False
    )
    for row, (title, comparison) in zip(axes, found.items(), strict=True):
        comparison.plot(row)
        row[0].set_title(f"{title}\nPosterior means")
    path = Path(options.out).with_name("comparison.png")
    figure.savefig(path, dpi=110)
    print(path)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["pyro", "numpyro", "both"], default="both")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each training (6)")
    parser.add_argument(
        "--nuts", type=int, default=300, help="warm-up steps and draws of a chain (300)"
    )
    parser.add_argument("--details", action="store_true", help="tables, and NUTS beside them")
    parser.add_argument("--out", default="demo.png", help="the picture (demo.png)")
    return parser.parse_args(arguments)


def diabetes() -> Split:
    """Every fifth patient, in random order, is for the test."""
    x, y = load_diabetes(return_X_y=True)
    test = np.random.default_rng(0).permutation(len(y)) % 5 == 0
    return standardise(x, y, test)


def compare(runs: list[Run], split: Split, rows: int = 5) -> None:
    """Predictive mean ± standard deviation side by side, of some rows and on average."""
    print(f"{'predictive mean ± sd':22s}" + "".join(f"{run.label:>16s}" for run in runs))
    for row in np.linspace(0, len(split.y_test) - 1, rows).astype(int):
        cells = (f"{run.mean[row]:.2f} ± {run.variance[row] ** 0.5:.2f}" for run in runs)
        print(f"{f'  test row {row}':22s}" + "".join(f"{cell:>16s}" for cell in cells))
    for label, variance in (("variance", "variance"), ("  epistemic part", "epistemic_variance")):
        cells = (f"{getattr(run, variance).mean():.3f}" for run in runs)
        print(f"{f'  mean {label.strip()}':22s}" + "".join(f"{cell:>16s}" for cell in cells))


def draw(runs: list[Run], split: Split, path: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    draw_intervals(left, runs[0], split)
    draw_curves(right, runs)
    figure.savefig(path, dpi=150)


def draw_intervals(axes: plt.Axes, run: Run, split: Split) -> None:
    order = run.mean.argsort()
    mean = run.mean[order]
    place = np.arange(len(mean))
    bands = [
        ("95 % of patients", run.variance, "#c6dbef"),
        ("95 % interval of their mean", run.epistemic_variance, "#6baed6"),
    ]
    for label, variance, colour in bands:
        half = 1.96 * np.sqrt(variance[order])
        axes.fill_between(place, mean - half, mean + half, color=colour, label=label, lw=0)
    axes.plot(place, mean, color="#08519c", label="prediction")
    axes.plot(place, split.y_test[order], ".", color="#d94801", ms=5, label="what happened")
    axes.set(xlabel="unseen patients, by predicted progression", ylabel="progression in a year")
    axes.set_title("What the network knows, and what it does not")
    axes.legend(loc="upper left", fontsize=8)


def draw_curves(axes: plt.Axes, runs: list[Run]) -> None:
    curves = [run for run in runs if run.elbos]
    for run, colour, width in zip(curves, ("#08519c", "#fdae6b"), (2, 0.6), strict=True):
        label = METHODS[run.label]
        axes.plot(run.seconds, run.elbos, color=colour, lw=width, zorder=2 + width, label=label)
    axes.set_xlim(0, runs[0].seconds[-1])
    axes.set_ylim(*visible_range(runs))
    axes.set(xlabel="seconds of training", ylabel="ELBO (higher is better)")
    axes.set_title("The same model and time: no noise in closed form")
    axes.legend(loc="lower right")


def visible_range(runs: list[Run]) -> tuple[float, float]:
    """Leave the first steps out of the picture: they are far below the rest."""
    final = runs[0].elbos[-1]
    return final - 0.7 * abs(final), final + 0.15 * abs(final)


if __name__ == "__main__":
    main()
