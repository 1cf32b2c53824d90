"""A Bayesian network on scikit-learn's diabetes data: closed-form against sampled training.

    python examples/demo.py

Trains the same model and the same guide for the same time, once with the ELBO in closed form and
once with Pyro's sampled one, and draws the predictive intervals and both learning curves.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceMeanField_ELBO
from pyro.nn import PyroModule, PyroSample
from regression import Split, scores, standardise
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from pyro_moments import SVI, DeterministicELBO, DVIGuide, Prediction, predict


class Network(PyroModule):
    """An ordinary Pyro model: 50 ReLUs, two outputs, the log variance of the noise being one."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.hidden, self.output = layer(inputs, 50), layer(50, 2)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        out = self.output(torch.relu(self.hidden(x)))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(out[..., 0], torch.exp(0.5 * out[..., 1])), obs=y)


def layer(inputs: int, outputs: int) -> PyroModule:
    linear = PyroModule[nn.Linear](inputs, outputs)
    scale = inputs**-0.5
    linear.weight = PyroSample(dist.Normal(0.0, scale).expand([outputs, inputs]).to_event(2))
    linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return linear


@dataclass
class Run:
    """What one training left behind."""

    label: str
    seconds: list[float]
    elbos: list[float]
    prediction: Prediction


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(1)
    split = diabetes()
    rows = len(split.y_train)
    print(
        f"diabetes: {rows} training rows, {len(split.y_test)} test rows; {options.seconds:g} s each"
    )

    model = Network(split.x_train.shape[1])
    svi = SVI(model, DVIGuide(), DeterministicELBO())
    ours = train("deterministic", svi, split, options.seconds)

    pyro.clear_param_store()
    model = Network(split.x_train.shape[1])
    svi = SVI(model, DVIGuide(model), TraceMeanField_ELBO())
    sampled = train("sampled", svi, split, options.seconds)

    for run in (ours, sampled):
        report(run, split)
    draw((ours, sampled), split, options.out)
    print(options.out)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each training (15)")
    parser.add_argument("--out", default="demo.png", help="the picture (demo.png)")
    options = parser.parse_args(arguments)
    if options.backend != "pyro":
        parser.error("--backend numpyro is not available yet; use --backend pyro")
    return options


def diabetes() -> Split:
    """Every fifth patient, in random order, is for the test."""
    x, y = load_diabetes(return_X_y=True)
    test = np.random.default_rng(0).permutation(len(y)) % 5 == 0
    return standardise(x, y, test)


def train(label: str, svi: SVI, split: Split, seconds: float) -> Run:
    pyro.set_rng_seed(0)
    svi.step(split.x_train, split.y_train)  # outside the clock: torch loads its optimisers here
    times, elbos, start = [], [], time.perf_counter()
    while not times or times[-1] < seconds:
        elbos.append(-svi.step(split.x_train, split.y_train))
        times.append(time.perf_counter() - start)
    prediction = predict(svi.model, svi.guide, split.x_test)["obs"]
    return Run(label, times, elbos, prediction)


def report(run: Run, split: Split) -> None:
    """Scores in the units of the data set, and the ELBO after 1/16, 1/8, … of the time."""
    log_likelihood, rmse = scores(split, run.prediction.log_prob(split.y_test), run.prediction.mean)
    moments = [run.seconds[-1] / 2**k for k in (4, 3, 2, 1, 0)]
    places = np.searchsorted(run.seconds, moments)
    trace = "  ".join(f"{run.seconds[i]:.1f} s {run.elbos[i]:.1f}" for i in places)
    print(f"{run.label:13s} test log-likelihood {log_likelihood:.3f}, RMSE {rmse:.1f}")
    print(f"{'':13s} {len(run.elbos)} steps; ELBO after {trace}")


def draw(runs: tuple[Run, Run], split: Split, path: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    draw_intervals(left, runs[0].prediction, split)
    draw_curves(right, runs)
    figure.savefig(path, dpi=150)


def draw_intervals(axes: plt.Axes, prediction: Prediction, split: Split) -> None:
    order = prediction.mean.argsort()
    mean = prediction.mean[order]
    place = np.arange(len(mean))
    bands = [
        ("95 % interval, noise included", prediction.variance, "#c6dbef"),
        ("95 % interval, epistemic only", prediction.epistemic_variance, "#6baed6"),
    ]
    for label, variance, colour in bands:
        half = 1.96 * variance[order].sqrt()
        axes.fill_between(place, mean - half, mean + half, color=colour, label=label, lw=0)
    axes.plot(place, mean, color="#08519c", label="predictive mean")
    axes.plot(place, split.y_test[order], ".", color="#d94801", ms=5, label="test rows")
    axes.set(xlabel="test rows, sorted by prediction", ylabel="disease progression (standardised)")
    axes.set_title("Predictions in one pass, without samples")
    axes.legend(loc="upper left", fontsize=8)


def draw_curves(axes: plt.Axes, runs: tuple[Run, Run]) -> None:
    for run, colour, width in zip(runs, ("#08519c", "#fdae6b"), (2, 0.6), strict=True):
        axes.plot(run.seconds, run.elbos, color=colour, lw=width, zorder=2 + width, label=run.label)
    axes.set_xlim(left=runs[0].seconds[-1] / 50)
    axes.set_ylim(*visible_range(runs))
    axes.set(xscale="log", xlabel="seconds of training", ylabel="ELBO")
    axes.set_title("Learning curves at equal time")
    axes.legend(loc="lower right")


def visible_range(runs: tuple[Run, Run]) -> tuple[float, float]:
    """Leave the first steps out of the picture: they are far below the rest."""
    final = runs[0].elbos[-1]
    return final - 0.7 * abs(final), final + 0.15 * abs(final)


if __name__ == "__main__":
    main()
