"""What networks trained with dropout know of attacked digits: black-box α energies against a net
without dropout.

    python examples/mnist_attacks.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. As in Li and Gal 2017,
figures 4 and 6 to 8: three hidden layers, dropout of 0.5 before each and before the output (0.2 of
the pixels), 10 masks a step, pixels in [0, 1]. "deterministic" has the most probable weights of the
same network without dropout; "without draws" is the energy of α = 0.5 in closed form, whose last
loss the results have beside draws. With --nets the other nets keep what the results say of them.

signs     one step along the sign of the gradient that makes the predicted class less probable
targeted  40 steps of 0.01 along the sign of the gradient that makes a digit look like a zero
noise     independent Normal noise of each pixel

Attacks see the network's masks (10 of them) and clip pixels to [0, 1]. Predictions average 100.
Hidden layers of 200 units and 5 epochs; --full takes 1000 units and 100 epochs.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from dropout import Net
from tqdm import tqdm

NETS = {
    "deterministic": (0.0, 0.0, "mean", 0.0),
    "α = 0": (0.5, 0.2, "sampled", 0.0),
    "α = 0.5": (0.5, 0.2, "sampled", 0.5),
    "α = 1": (0.5, 0.2, "sampled", 1.0),
    "α = 0.5 without draws": (0.5, 0.2, "analytic", 0.5),
}
LEVELS = np.round(np.linspace(0, 0.5, 11), 2)  # of signs, and standard deviations of noise
TARGETED_STEPS, TARGETED_SIZE = 40, 0.01
COUNTS = (2, 5, 10, 20)  # of masks a step, whose time is measured
TIMED_STEPS = 50
MEASURES = {
    "accuracy": "accuracy",
    "log_likelihood": "test log-likelihood",
    "entropy": "predictive entropy",
}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.images)
    backend = importlib.import_module(f"classifier_{options.backend}")
    file = options.out / "mnist_attacks.json"
    results: dict[str, Any] = {"attacks": {}}
    if options.nets != list(NETS) and file.exists():
        results = json.loads(file.read_text())
    else:
        results["seconds_per_step"] = seconds(backend, data, options)
    for name in options.nets:
        classifier = backend.Classifier(data.x_train, data.y_train, net(name, options))
        results["attacks"][name] = found = attacked(classifier, data)
        if "without draws" in name:
            check = classifier.by_draws
            kinds = "loss", "value", "standard_error", "answer"
            results["loss"] = {kind: getattr(check, kind) for kind in kinds}
        summary = ", ".join(f"{kind} {parts['entropy'][-1]:.2f}" for kind, parts in found.items())
        tqdm.write(f"{name}: accuracy {found['signs']['accuracy'][0]:.4f}, entropy {summary}")
    file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    picture(results).savefig(options.out / "mnist_attacks.png", dpi=150)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--nets", nargs="*", choices=list(NETS), default=list(NETS))
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="numpyro")
    parser.add_argument("--full", action="store_true", help="1000 hidden units, 100 epochs")
    parser.add_argument("--hidden", type=int, help="units of each hidden layer (200)")
    parser.add_argument("--steps", type=int, help="updates (5 epochs)")
    parser.add_argument("--images", type=int, default=1000, help="test images (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.hidden = options.hidden or (1000 if options.full else 200)
    options.steps = options.steps or (100 if options.full else 5) * 60_000 // 128
    return options


class Data(NamedTuple):
    """Images [n, 784] with pixels in [0, 1], and their classes [n]."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(folder: Path, count: int) -> Data:
    with np.load(folder / "images" / "mnist.npz") as arrays:
        parts = [
            (
                arrays[f"x_{part}"].reshape(-1, 784) / np.float32(255),
                arrays[f"y_{part}"].astype(int),
            )
            for part in ("train", "test")
        ]
    (x_train, y_train), (x_test, y_test) = parts
    return Data(x_train, y_train, x_test[:count], y_test[:count])


def net(name: str, options: argparse.Namespace) -> Net:
    return Net(*NETS[name], hidden=options.hidden, steps=options.steps, seed=options.seed)


def seconds(backend: Any, data: Data, options: argparse.Namespace) -> dict[str, float]:
    """Of a step, by the number of masks."""
    timed = replace(net("α = 0.5", options), steps=TIMED_STEPS)
    nets = {str(count): replace(timed, particles=count) for count in COUNTS}
    nets["without draws"] = replace(net("α = 0.5 without draws", options), steps=TIMED_STEPS)
    return {
        name: backend.Classifier(data.x_train, data.y_train, each).seconds_per_step
        for name, each in nets.items()
    }


def attacked(classifier: Any, data: Data) -> dict[str, dict[str, list[float]]]:
    """Measures of the predictions under each attack, from none to the strongest."""
    attacks = {
        "signs": signs(classifier, data.x_test),
        "targeted": targeted(classifier, data.x_test, data.y_test),
        "noise": noise(data.x_test),
    }
    y = {"targeted": data.y_test[data.y_test != 0]}
    return {
        name: measured(classifier, images, y.get(name, data.y_test))
        for name, images in attacks.items()
    }


def signs(classifier: Any, x: np.ndarray) -> Iterator[np.ndarray]:
    predicted = classifier.probabilities(x).argmax(-1)
    direction = np.sign(classifier.gradient(x, predicted))
    for level in LEVELS:
        yield np.clip(x - np.float32(level) * direction, 0, 1)


def targeted(classifier: Any, x: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
    x = x[y != 0]
    zeros = np.zeros(len(x), int)
    yield x
    for _ in range(TARGETED_STEPS):
        step = np.float32(TARGETED_SIZE) * np.sign(classifier.gradient(x, zeros))
        x = np.clip(x + step, 0, 1)
        yield x


def noise(x: np.ndarray) -> Iterator[np.ndarray]:
    pattern = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    for level in LEVELS:
        yield np.clip(x + np.float32(level) * pattern, 0, 1)


def measured(
    classifier: Any, attack: Iterator[np.ndarray], y: np.ndarray
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for x in attack:
        p = classifier.probabilities(x).clip(1e-12, 1)
        found["accuracy"].append(float((p.argmax(-1) == y).mean()))
        found["log_likelihood"].append(float(np.log(p[np.arange(len(y)), y]).mean()))
        found["entropy"].append(float(-(p * np.log(p)).sum(-1).mean()))
    return found


def picture(results: dict[str, Any]) -> plt.Figure:
    """Accuracy, log-likelihood and entropy under each attack; the time of a step."""
    attacks = {
        "signs": ("one step along the gradient's sign", LEVELS, "size of the step"),
        "targeted": ("targeted at class 0", range(TARGETED_STEPS + 1), "steps of 0.01"),
        "noise": ("Normal noise", LEVELS, "its standard deviation"),
    }
    figure, axes = plt.subplots(3, 4, figsize=(14, 8), layout="constrained")
    for column, (attack, (title, levels, label)) in enumerate(attacks.items()):
        axes[0, column].set_title(title)
        axes[2, column].set_xlabel(label)
        for row, (measure, name) in enumerate(MEASURES.items()):
            for kind, found in results["attacks"].items():
                axes[row, column].plot(levels, found[attack][measure], label=kind)
            axes[row, column].set_ylabel(name)
    times(axes[0, 3], results["seconds_per_step"])
    axes[1, 3].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
    for place in (axes[1, 3], axes[2, 3]):
        place.axis("off")
    return figure


def times(axes: plt.Axes, seconds: dict[str, float]) -> None:
    counts = [1e3 * seconds[str(count)] for count in COUNTS]
    axes.plot(COUNTS, counts, "o-", label="masks")
    axes.axhline(1e3 * seconds["without draws"], linestyle="--", label="without draws")
    axes.set_xlabel("masks of a step")
    axes.set_ylabel("milliseconds of a step")
    axes.set_ylim(0)
    axes.legend()


if __name__ == "__main__":
    main()
