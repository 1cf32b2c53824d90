"""Accuracy of analytic dropout: pre-activations of a network against those under drawn masks.

    OMP_NUM_THREADS=1 python benchmarks/dropout_accuracy.py

A network 784-300-100-10 with relu is trained with dropout on scikit-learn's digits, enlarged to
28 × 28 pixels. MCDropoutGuide takes its weights, and `moment_accuracy` compares the pre-activations
of every layer with those of draws. Reported are, for each probability to drop and each layer,

- the geometric mean of σ/σ* over units and images, σ* being the deviation under drawn masks
  (Shekhovtsov et al. 2018, ε_σ), and the mean of |μ − μ*|/σ*;
- for the first layer, means and deviations of more masks: the root mean square of the errors in
  standard errors, which is one, and the largest of them.
"""

import itertools
from functools import partial

import harness
import numpy as np
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro.infer.autoguide import init_to_value
from sklearn.datasets import load_digits
from torch import nn

from pyro_moments import MCDropoutGuide, moment_accuracy


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--out",
        sizes=([784, 300, 100, 10], "of the layers"),
        p=([0.2, 0.5], "probabilities to drop"),
        images=(4, "that are compared"),
        masks=(10_000, "of all layers"),
        first=(100_000, "masks of the first layer"),
        steps=(300, "of training"),
    )
    options.host = "pyro"
    harness.run(options, measured, lambda options, rows: rows, lambda rows: [])


def measured(host, options):
    torch.manual_seed(0)
    pixels, classes = load_digits(return_X_y=True)
    pixels = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    side = round(options.sizes[0] ** 0.5)
    images = F.interpolate(pixels, (side, side)).flatten(1)
    for p in options.p:
        layers = trained(options.sizes, p, images, torch.tensor(classes), options.steps)
        chosen = images[: options.images]
        by_layer = accuracy(layers, p, chosen, options.masks)
        first = standard_errors(accuracy(layers[:1], p, chosen, options.first)["layer0"])
        for place in range(len(layers)):
            measures = by_layer[f"layer{place}"].measures
            row = {"p": p, "layer": place + 1, "deviation_ratio": measures.deviation_ratio.value}
            row |= {"mean_error": measures.mean_error.value}
            yield row | (dict.fromkeys(first) if place else first)


def trained(sizes, p, x, y, steps):
    layers = [nn.Linear(n, m) for n, m in itertools.pairwise(sizes)]
    optimiser = torch.optim.Adam([w for layer in layers for w in layer.parameters()], lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(x), (128,))
        h = x[rows]
        for place, layer in enumerate(layers):
            h = layer(F.dropout(torch.relu(h) if place else h, p))
        optimiser.zero_grad()
        F.cross_entropy(h, y[rows]).backward()
        optimiser.step()
    return layers


def network(layers, x):
    """The pre-activations of each layer, under random weights."""
    for place, layer in enumerate(layers):
        w, b = (
            pyro.sample(f"{name}{place}", dist.Normal(0.0, 1.0).expand(v.shape).to_event(v.dim()))
            for name, v in (("weight", layer.weight), ("bias", layer.bias))
        )
        x = F.linear(torch.relu(x) if place else x, w, b)
        pyro.deterministic(f"layer{place}", x)


def accuracy(layers, p, x, masks):
    """Moments of all layers with trained weights, beside those of so many drawn masks."""
    pyro.clear_param_store()
    values = {
        f"{name}{place}": value.detach()
        for place, layer in enumerate(layers)
        for name, value in layer.named_parameters()
    }
    guide = MCDropoutGuide(p=p, init_loc_fn=init_to_value(values=values))
    return moment_accuracy(partial(network, layers), guide, x, num_samples=masks)


def standard_errors(row):
    """Errors of means and deviations of a layer in standard errors."""
    means = row.mean - row.sampled_mean
    deviations = row.standard_deviation - row.sampled_standard_deviation
    z = np.abs(np.stack([means, deviations]) / np.stack(row.standard_errors))
    return {
        "rms_standard_errors": float(np.sqrt(np.square(z).mean())),
        "largest_standard_error": float(z.max()),
        "share_beyond_three": float((z > 3).mean()),
    }


if __name__ == "__main__":
    main()
