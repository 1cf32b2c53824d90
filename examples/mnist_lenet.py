"""A Bayesian strided LeNet on digits: moments without draws beside local reparameterisation.

    python examples/mnist_lenet.py --data DIR --out results

DIR holds images/mnist.npz with arrays x_train, y_train, x_test and y_test. The network is that of
Haussmann et al. 2019 (table 4): convolutions of size 5 and stride 2 with 20 and 50 channels, 500
units, ReLUs; priors N(0, 1/100) of the weights and biases without a distribution; He's initial
means, initial variances exp(−9), Adam with a rate that falls to zero along a cosine.
"moments" trains by the closed-form ELBO with diagonal covariance, which is the paper's baseline
dDVI with exact rules; "draws" by one draw of the pre-activations a step, which is its baseline
VarOut. Both start at the same weights and see the same mini-batches.

The posteriors predict the test images by diagonal covariance and by draws, the first one also by
backward covariance, which knows that positions share weights. The picture shows digits whose class
has the largest and the smallest entropy, and the calibration. Pyro, in its default mode.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from mnist_attacks import Data, load
from mnist_tridiagonal import PIECE, reliability, scores
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from tqdm import tqdm

from pyro_moments import DeterministicELBO, DVIGuide, Fit, fit, predict

BATCH, PRIOR, LOG_VARIANCE, SHOWN = 128, 0.1, -9.0, 6
METHODS: dict[str, dict[str, Any]] = {
    "moments": {"covariance": "diagonal"},
    "draws": {"propagation": "sampled", "num_particles": 1},
}
PREDICTIONS: dict[str, dict[str, Any]] = {
    "diagonal": {"covariance": "diagonal"},
    "backward": {"covariance": "backward"},
    "draws": {"propagation": "sampled", "num_particles": 100},
}
PREDICTED = {"moments": tuple(PREDICTIONS), "draws": ("diagonal", "draws")}


class StridedLeNet(PyroModule):
    """Two strided convolutions and two linear maps with Gaussian weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = bayesian(PyroModule[nn.Conv2d](1, 20, 5, stride=2))
        self.second = bayesian(PyroModule[nn.Conv2d](20, 50, 5, stride=2))
        self.hidden = bayesian(PyroModule[nn.Linear](800, 500))
        self.output = bayesian(PyroModule[nn.Linear](500, 10))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Classes of images [n, 784]."""
        x = torch.relu(self.first(x.reshape(-1, 1, 28, 28)))
        x = torch.relu(self.second(x)).flatten(1)
        logits = self.output(torch.relu(self.hidden(x)))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def bayesian(layer: Any) -> Any:
    """Give a layer's weight a prior; its bias, zero at first, stays a parameter."""
    shape = layer.weight.shape
    layer.weight = PyroSample(dist.Normal(0.0, PRIOR).expand(shape).to_event(len(shape)))
    nn.init.zeros_(layer.bias)
    return layer


def he_normal(site: dict) -> Tensor:
    """Means of weights: N(0, 1 / fan-in)."""
    shape = site["fn"].event_shape
    return torch.randn(shape) / shape[1:].numel() ** 0.5


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.images)
    results = {}
    for name in METHODS:
        results[name], probs = trained(data, name, options)
        if name == "moments":
            shown = probs["backward"]
        (options.out / "mnist_lenet.json").write_text(json.dumps(results, indent=2) + "\n")
    picture(data, shown, results).savefig(options.out / "mnist_lenet.png", dpi=150)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/mnist.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="updates, in place of epochs")
    parser.add_argument("--rate", type=float, default=2e-3, help="of Adam (%(default)s)")
    parser.add_argument("--images", type=int, default=10_000, help="test images (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.steps = options.steps or options.epochs * (60_000 // BATCH)
    return options


def trained(
    data: Data, name: str, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Train one posterior; return its measures, and probabilities of the test images."""
    reseed(options.seed)
    model = StridedLeNet()
    posterior = fitted(model, he_normal, data, METHODS[name], options)
    found = {kind: predicted(model, posterior, data, PREDICTIONS[kind]) for kind in PREDICTED[name]}
    results = {
        "seconds_per_step": posterior.seconds["fitting"] / options.steps,
        **{kind: measures(probs, data.y_test) for kind, probs in found.items()},
    }
    tqdm.write(f"{name}: {json.dumps({kind: results[kind]['error'] for kind in found})}")
    return results, found


def reseed(seed: int) -> None:
    """Begin a training that shares nothing with an earlier one."""
    pyro.settings.set(module_local_params=True)
    pyro.enable_validation(False)
    pyro.set_rng_seed(seed)


def fitted(
    model: Any, initial: Callable, data: Any, method: dict, options: argparse.Namespace
) -> Fit:
    """Train a mean-field posterior by Adam."""
    return fit(
        model,
        DVIGuide(model, init_loc_fn=initial, init_scale=float(np.exp(LOG_VARIANCE / 2))),
        torch.as_tensor(data.x_train),
        torch.as_tensor(data.y_train),
        objective=DeterministicELBO(**method),
        steps=options.steps,
        batch_size=BATCH,
        optimiser=partial(torch.optim.Adam, lr=options.rate),
        scheduler=partial(CosineAnnealingLR, T_max=options.steps),
        kl_warm_up=getattr(options, "kl_warm_up", None),
        seed=options.seed,
    )


@torch.no_grad()
def predicted(
    model: Any, posterior: Fit, data: Any, how: dict[str, Any], piece: int = PIECE
) -> np.ndarray:
    """Probabilities of the classes [n, 10] of the test images, so many at a time."""
    pieces = torch.as_tensor(data.x_test).split(piece)
    found = [predict(model, posterior, part, **how)["obs"].probs for part in pieces]
    return torch.cat(found).numpy()


def measures(probs: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Test error, mean log-likelihood, calibration error, and what a picture of it takes."""
    found = scores(probs, y)
    return {"error": 1 - found.pop("accuracy"), **found, "reliability": reliability(probs, y)}


def picture(data: Data, probs: np.ndarray, results: dict[str, Any]) -> plt.Figure:
    """Digits of small and large entropy with their probabilities, and the calibration."""
    figure = plt.figure(figsize=(13, 4.5), layout="constrained")
    digits, curve = figure.subfigures(1, 2, width_ratios=[2, 1])
    order = np.argsort(-(probs * np.log(probs.clip(1e-12))).sum(-1))
    axes = digits.subplots(4, SHOWN)
    for row, chosen in ((0, order[:SHOWN]), (2, order[-SHOWN:])):
        for column, place in enumerate(chosen):
            axes[row, column].imshow(data.x_test[place].reshape(28, 28), cmap="gray_r")
            axes[row, column].set(xticks=[], yticks=[], title=f"a {data.y_test[place]}")
            axes[row + 1, column].bar(range(10), probs[place])
            axes[row + 1, column].set(ylim=(0, 1), xticks=range(0, 10, 3), yticks=[])
    place = curve.subplots()
    place.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    for name, found in results.items():
        for kind in PREDICTED[name]:
            parts = found[kind]["reliability"]
            place.plot(parts["confidence"], parts["accuracy"], "o-", label=f"{name}, {kind}")
    place.set(xlabel="confidence", ylabel="accuracy")
    place.legend(title="trained by, predicted by")
    return figure


if __name__ == "__main__":
    main()
