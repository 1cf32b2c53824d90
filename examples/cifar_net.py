"""A Bayesian network of nine convolutions on CIFAR-10, initialised by statistics of the data.

    python examples/cifar_net.py --data DIR --out results

DIR holds images/cifar10_20k.npz with arrays x_train, y_train, x_test and y_test; the training set
is a subset of 20 000 images. The network is the convolutional one of Shekhovtsov et al. 2018 (D.4),
with a fourth of its channels (--full: all of them): leaky ReLUs, and the mean over positions of the
last layer. `initialise_from_statistics` propagates mean and variance of the colours through it once
and gives every layer outputs of mean 0 and variance 1; this is where the posterior's means start.
Weights have priors N(0, 1/100); the weight of their divergence rises over all steps.

The posterior is trained by draws of the pre-activations, and predicts by diagonal and backward
covariance and by draws, as in examples/mnist_lenet.py. Training by moments (--method moments) is
slow here, since the mean over positions asks for covariances between all positions: with an eighth
of the channels a step of 128 images takes 0.8 s of one core, and 0.07 s by draws.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from mnist_lenet import (
    BATCH,
    METHODS,
    PREDICTIONS,
    PRIOR,
    fitted,
    measures,
    predicted,
    reseed,
)
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import to_pyro_module_
from torch import Tensor, nn

from pyro_moments import initialise_from_statistics

SIZES, STRIDES = (3, 3, 3, 3, 3, 3, 3, 1, 1), (1, 1, 2, 1, 1, 2, 1, 1, 1)
CHANNELS, CLASSES, SLOPE = (96, 96, 96, 192, 192, 192, 192, 192), 10, 0.01
TOGETHER = 20  # images of one prediction, as each has covariances with all weights


class Data(NamedTuple):
    """Images [n, 3, 32, 32], standardised by colour, and their classes [n]."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Network(PyroModule):
    """Convolutions with Gaussian weights, and logits that are a mean over positions."""

    def __init__(self, plain: nn.Sequential) -> None:
        super().__init__()
        self.start = {f"layers.{name}": value.clone() for name, value in plain.state_dict().items()}
        to_pyro_module_(plain)
        self.layers = plain
        for layer in plain:
            if isinstance(layer, nn.Conv2d):
                shape = layer.weight.shape
                prior = dist.Normal(0.0, PRIOR).expand(shape).to_event(len(shape))
                layer.weight = PyroSample(prior)

    def initial(self, site: dict) -> Tensor:
        """Mean of a weight at first: that of the plain network."""
        return self.start[site["name"]]

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Classes of images."""
        logits = self.layers(x).mean((2, 3))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def plain_network(share: float) -> nn.Sequential:
    """The network as torch initialises it, with a share of the channels."""
    channels = [3, *(round(share * count) for count in CHANNELS), CLASSES]
    layers: list[nn.Module] = []
    for place, window in enumerate(zip(SIZES, STRIDES, strict=True)):
        layers += [nn.Conv2d(*channels[place : place + 2], *window), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options.data, options.images)
    reseed(options.seed)
    plain = plain_network(options.share)
    # colours are standardised, which makes the statistics of the data these
    initialise_from_statistics(plain, torch.zeros(3), torch.ones(3))
    model = Network(plain)
    posterior = fitted(model, model.initial, data, METHODS[options.method], options)
    results: dict[str, Any] = {
        "method": options.method,
        "channels": options.share,
        "steps": options.steps,
        "seconds_per_step": posterior.seconds["fitting"] / options.steps,
    }
    for kind, how in PREDICTIONS.items():
        probs = predicted(model, posterior, data, how, TOGETHER)
        results[kind] = measures(probs, data.y_test)
        print(kind, {name: results[kind][name] for name in ("error", "calibration_error")})
    file = options.out / f"cifar_net_{options.method}.json"
    file.write_text(json.dumps(results, indent=2) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with images/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--method", choices=list(METHODS), default="draws")
    parser.add_argument("--full", action="store_true", help="all channels, 100 epochs")
    parser.add_argument("--share", type=float, help="of the channels (0.25)")
    parser.add_argument("--steps", type=int, help="updates (10 epochs)")
    parser.add_argument("--images", type=int, default=1000, help="test images (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.share = options.share or (1.0 if options.full else 0.25)
    options.steps = options.steps or (100 if options.full else 10) * 20_000 // BATCH
    options.kl_warm_up, options.rate = options.steps, 1e-3
    return options


def load(folder: Path, count: int) -> Data:
    with np.load(folder / "images" / "cifar10_20k.npz") as arrays:
        x_train, x_test = (
            arrays[f"x_{part}"].transpose(0, 3, 1, 2) / np.float32(255)
            for part in ("train", "test")
        )
        y_train, y_test = (arrays[f"y_{part}"].astype(int) for part in ("train", "test"))
    mean, sd = (statistic((0, 2, 3), keepdims=True) for statistic in (x_train.mean, x_train.std))
    x_test = ((x_test[:count] - mean) / sd).astype(np.float32)
    return Data(((x_train - mean) / sd).astype(np.float32), y_train, x_test, y_test[:count])


if __name__ == "__main__":
    main()
