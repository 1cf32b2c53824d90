"""A network of step activations, trained by the exact gradients of their moments.

    python examples/digits_steps.py --backend numpyro --out results

A step has no gradient, but the probability that it is one has: the inputs of a step are
Gaussian, as the weights before it are (Shekhovtsov et al. 2018, section 3.6). The digits of
scikit-learn (8 × 8 pixels, a quarter held out), 100 steps, 10 classes; priors N(0, 1 / inputs) of
the first weights and N(0, 1) of the others. Beside it, the same network with weights that are
certain is trained by the straight-through estimator, which takes the step for the identity in the
backward pass.

After 1500 steps of Adam the test accuracy was 97.1 % (Pyro) and 96.9 % (NumPyro), with the
straight-through estimator 97.6 %. The loss, in nats for each image, was 1.468 and 1.432, by draws
1.507 and 1.482: the sums of steps are skewed, and moments take them as Gaussian.
"""

from __future__ import annotations

import argparse
import importlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HIDDEN, CLASSES = 100, 10


@dataclass(frozen=True)
class Digits:
    """Images [n, 64] between 0 and 1, and classes [n]."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Setting:
    """How a network is trained by Adam, whose rate falls to zero on a half cosine."""

    steps: int = 1500
    batch_size: int = 200
    learning_rate: float = 0.03
    seed: int = 0
    num_particles: int = 200  # of the loss by draws in the end


def digits(seed: int) -> Digits:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return Digits(x[450:], y[450:], x[:450], y[:450])


def initial_weights(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights [100, 64] and [10, 100] of the straight-through estimator."""
    return tuple(
        random.normal(size=shape, scale=shape[1] ** -0.5).astype(np.float32)
        for shape in ((HIDDEN, 64), (CLASSES, HIDDEN))
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=("pyro", "numpyro"), default="pyro")
    parser.add_argument("--steps", type=int, default=Setting.steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--particles", type=int, default=Setting.num_particles)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args(arguments)
    backend = importlib.import_module(f"digits_steps_{options.backend}")
    data = digits(options.seed)
    setting = Setting(steps=options.steps, seed=options.seed, num_particles=options.particles)
    summary = {
        "backend": options.backend,
        "steps": setting.steps,
        "seed": setting.seed,
        "moments": backend.by_moments(data, setting),
        "straight-through": backend.straight_through(data, setting),
    }
    text = json.dumps(summary, indent=2)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"digits_steps_{options.backend}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
