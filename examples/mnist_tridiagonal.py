"""What tridiagonal posteriors of a network know of digits: calibration and credible intervals.

    python examples/mnist_tridiagonal.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. Three hidden layers of
ReLUs and priors N(0, 1); the posteriors are those of examples/uci_tridiagonal.py. As in Posch and
Pilz 2020 a step takes one draw (--propagation analytic: the closed-form ELBO of independent
components), and predictions, with the 95 % credible intervals of the probability of the predicted
class, take draws of the posterior; "closed form" are those of one pass.

Each kind of guide adds to the JSON file. "mean field" is DVIGuide, whose draws are of each image's
pre-activations; the others draw a weight once for the batch, also with ρ = 0.

Hidden layers of 100 units and 20 epochs; --full takes 1000 units and 100 epochs.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from dropout import Net
from mnist_attacks import Data, load
from tqdm import tqdm
from uci_tridiagonal import COMPARED

GUIDES = {**COMPARED, "free scales, ρ = 0": ("free scales, ρ = 0", 0.0)}
BINS = 15  # of confidences
PIECE = 1000  # images of one prediction
LEVELS = np.linspace(0.01, 0.99, 99)  # of quantiles
KINDS = {"right": "-", "wrong": "--"}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.images)
    backend = importlib.import_module(f"classifier_{options.backend}")
    file = options.out / "mnist_tridiagonal.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    for name in options.guides:
        results[name] = found = trained(backend, data, name, options)
        parts = {**found["draws"], **{kind: part["mean"] for kind, part in found["width"].items()}}
        tqdm.write(f"{name}: {', '.join(f'{key} {value:.4f}' for key, value in parts.items())}")
        file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    picture(results).savefig(options.out / "mnist_tridiagonal.png", dpi=150)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--guides", nargs="*", choices=list(GUIDES), default=list(GUIDES))
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="numpyro")
    parser.add_argument("--propagation", choices=["sampled", "analytic"], default="sampled")
    parser.add_argument("--full", action="store_true", help="1000 hidden units, 100 epochs")
    parser.add_argument("--hidden", type=int, help="units of each hidden layer (100)")
    parser.add_argument("--steps", type=int, help="updates (20 epochs)")
    parser.add_argument("--images", type=int, default=10_000, help="test images (%(default)s)")
    parser.add_argument("--draws", type=int, default=100, help="of a prediction (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.hidden = options.hidden or (1000 if options.full else 100)
    options.steps = options.steps or (100 if options.full else 20) * 60_000 // 128
    return options


def trained(backend: Any, data: Data, name: str, options: argparse.Namespace) -> dict:
    """Measures of a posterior on the test images."""
    family, rise = GUIDES[name]
    net = Net(
        p=0.0,
        p_pixel=0.0,
        propagation=options.propagation,
        alpha=0.0,
        hidden=options.hidden,
        steps=options.steps,
        draws=options.draws,
        seed=options.seed,
        kl_warm_up=int(rise * options.steps) or None,
    )
    classifier = backend.GaussianClassifier(data.x_train, data.y_train, family, net)
    pieces = [data.x_test[start : start + PIECE] for start in range(0, len(data.x_test), PIECE)]
    drawn = [classifier.drawn(piece) for piece in tqdm(pieces, desc=name, leave=False)]
    probs, ends = (np.concatenate(part, axis=-2) for part in zip(*drawn, strict=True))
    closed = np.concatenate([classifier.probabilities(piece) for piece in pieces])
    return {
        "parameters": classifier.parameters,
        "loss": classifier.loss,
        "seconds_per_step": classifier.seconds_per_step,
        "draws": scores(probs, data.y_test),
        "closed form": scores(closed, data.y_test),
        "reliability": reliability(probs, data.y_test),
        **widths(probs, ends, data.y_test),
        "groups": classifier.groups,
    }


def scores(probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, mean log-likelihood, and the expected calibration error."""
    likelihood = probs[np.arange(len(y)), y].clip(1e-12)
    parts = reliability(probs, y)
    errors = np.abs(np.subtract(parts["accuracy"], parts["confidence"]))
    return {
        "accuracy": float((probs.argmax(-1) == y).mean()),
        "log_likelihood": float(np.log(likelihood).mean()),
        "calibration_error": float(np.average(errors, weights=parts["count"])),
    }


def reliability(probs: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """Number, mean confidence and accuracy of the predictions in each bin that has some."""
    confidence, right = probs.max(-1), probs.argmax(-1) == y
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    some = count > 0
    sums = {"confidence": confidence, "accuracy": right}
    means = {
        key: (np.bincount(place, part, BINS)[some] / count[some]).tolist()
        for key, part in sums.items()
    }
    return {"count": count[some].tolist(), **means}


def widths(probs: np.ndarray, ends: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Width of the predicted class's credible intervals, for right and for wrong predictions; and
    how often that of a wrong one is wider than that of a right one."""
    predicted = probs.argmax(-1)
    lower, upper = ends[:, np.arange(len(y)), predicted]
    right, width = predicted == y, upper - lower
    parts = {"right": width[right], "wrong": width[~right]}
    found = {
        kind: {"mean": float(part.mean()), "quantiles": np.quantile(part, LEVELS).tolist()}
        for kind, part in parts.items()
        if len(part)
    }
    wider = None
    if len(found) == len(parts):
        wider = float(np.mean(parts["wrong"][:, None] > parts["right"]))
    return {"width": found, "wider_if_wrong": wider}


def picture(results: dict[str, dict]) -> plt.Figure:
    """Calibration, widths of credible intervals, and ρ by layer."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.5), layout="constrained")
    axes[0].plot([0, 1], [0, 1], color="black", linewidth=0.8)
    for place, name in enumerate(name for name in GUIDES if name in results):
        found = results[name]
        parts = found["reliability"]
        axes[0].plot(parts["confidence"], parts["accuracy"], "o-", color=f"C{place}", label=name)
        for kind, part in found["width"].items():
            axes[1].plot(part["quantiles"], LEVELS, KINDS[kind], color=f"C{place}")
        rhos = {site: group["rho"] for site, group in found["groups"].items()}
        if any(rhos.values()):
            axes[2].plot(list(rhos.values()), list(rhos), "o", color=f"C{place}")
    axes[0].set(xlabel="confidence", ylabel="accuracy")
    axes[1].set(xlabel="width of the 95 % credible interval", ylabel="share below it")
    axes[1].set_title("right: solid, wrong: dashed")
    axes[2].set_xlabel("correlation ρ of neighbours")
    axes[2].axvline(0, color="black", linewidth=0.8)
    axes[2].locator_params(axis="x", nbins=5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


if __name__ == "__main__":
    main()
