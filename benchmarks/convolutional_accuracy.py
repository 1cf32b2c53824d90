"""Moments of trained convolutional networks, layer by layer, against those of draws.

    python benchmarks/convolutional_accuracy.py --data DIR --cache DIR [--host numpyro] [--out FILE]

LeNet and the CIFAR net of Shekhovtsov et al. (2018, D.4), trained as plain networks, with noisy
images (the variances are those of standardised pixels) or with independent Gaussian weights and
biases. `propagate` gives the moments by diagonal and by backward covariance, in double precision.
Reported are the paper's measures at the logits, and for some units of every layer: "sd" is the
geometric mean of σ/σ*, and "mean" the mean of |μ − μ*| over the mean of σ*, where μ* and σ* are of
draws. Exact moments have a "mean" of √(2/πn) for n passes with draws, 0.013 for 4000.

DIR holds images/mnist.npz and images/cifar10_20k.npz. Leaky ReLUs of slope 0.01 and no padding.
Networks train with batch normalisation, which is then folded into the convolution before it, so
that what is stored and measured are convolutions, leaky ReLUs and, for CIFAR, a mean over
positions. CIFAR takes bfloat16 while it trains, mirrored images and those moved by up to 4 pixels.
"""

import itertools
import math
from collections import namedtuple
from functools import partial

import harness
import moments
import numpy as np
import torch
import torch.nn.functional as F
from models import LENET
from torch import nn

SLOPE, BATCH, SHIFT = 0.01, 128, 4
CHANNELS = (3, 96, 96, 96, *[192] * 5, 10)
WINDOWS = ((3, 1), (3, 1), (3, 2), (3, 1), (3, 1), (3, 2), (3, 1), (1, 1), (1, 1))
CIFAR = [(*c, *w) for c, w in zip(itertools.pairwise(CHANNELS), WINDOWS, strict=True)]
# File of images, layers: input and output channels, size and stride of the window.
NETS = {"lenet": ("mnist", LENET), "cifar": ("cifar10_20k", CIFAR)}
NOISE, WEIGHTS = "noisy images", "random weights"
CASES = {
    "lenet": [(NOISE, 1e-4), (NOISE, 0.01), (NOISE, 0.1), (WEIGHTS, 0.005**2), (WEIGHTS, 0.02**2)],
    "cifar": [(NOISE, 0.01)],
}
EPOCHS, LEAST = {"lenet": 2, "cifar": 10}, {"lenet": 0.97, "cifar": 0.7}
UNITS, TOGETHER = {"lenet": 64, "cifar": 32}, {"lenet": 50, "cifar": 10}  # compared, passes
LIMITS = {("lenet", 0.1): (0.9, 1.1, 0.1), ("cifar", 0.01): (0.8, 1.2, np.inf)}  # sd, sd, mean
USUAL = 0.95, 1.05, 0.1
# Images [n, channels, height, width], standardised by channel, and their classes [n].
Images = namedtuple("Images", "x_train y_train x_test y_test")


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --check --out",
        data=(..., "folder with images/"),
        cache=(..., "folder of trained weights"),
        nets=(list(NETS), "names", list(NETS)),
        images=(8, "of the test set"),
        passes=(4000, "with draws"),
        threads=(1, "of the host"),
    )

    def failures(rows):
        return [line for row in rows if (line := off(row))]

    harness.run(options, rows, failures=failures, threads=options.threads)


def rows(host, options):
    for name in options.nets:
        net, images = prepared(name, options)
        with torch.no_grad():
            predicted = torch.cat([net(x).argmax(-1) for x in images.x_test.split(500)])
        accuracy = float((predicted == images.y_test).float().mean())
        for kind, variance in CASES[name]:
            row = {"kind": kind, "variance": variance, "passes": options.passes}
            row["layers"] = measured(host, name, net, images.x_test[: options.images], row)
            yield {"net": name, "test_accuracy": accuracy} | row


def prepared(name, options):
    """Load a trained network and its images; it is trained if there is no file of it."""
    file, net = options.cache / f"{name}.pt", network(name)
    parts = harness.read(options.data / "images" / f"{NETS[name][0]}.npz", *Images._fields)
    x_train, y_train, x_test, y_test = map(torch.as_tensor, parts)
    x_train, x_test = (channels(x) for x in (x_train, x_test))
    mean, sd = x_train.mean((0, 2, 3), keepdim=True), x_train.std((0, 2, 3), keepdim=True)
    images = Images((x_train - mean) / sd, y_train.long(), (x_test - mean) / sd, y_test.long())
    if not file.is_file():
        torch.save(trained(name, images, EPOCHS[name]).state_dict(), file)
    net.load_state_dict(torch.load(file))
    return net.requires_grad_(requires_grad=False), images


def channels(x):
    """Pixels in [0, 1], the channels first."""
    x = x.float() / 255
    return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()


def network(name):
    """The plain network: logits [n, 10] of images [n, channels, height, width]."""
    parts = [part for layer in NETS[name][1] for part in (nn.Conv2d(*layer), nn.LeakyReLU(SLOPE))]
    return nn.Sequential(*parts[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten())


def trained(name, images, epochs):
    """By Adam, with batch normalisation while it trains."""
    torch.manual_seed(0)
    normalised, cifar = nn.Sequential(), name == "cifar"
    for part in network(name):
        normalised.append(part)
        if isinstance(part, nn.Conv2d):
            normalised.append(nn.BatchNorm2d(part.out_channels))
    normalised = normalised.to(memory_format=torch.channels_last)
    steps = epochs * math.ceil(len(images.x_train) / BATCH)
    optimiser = torch.optim.AdamW(normalised.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for epoch in range(epochs):
        for rows in torch.randperm(len(images.x_train)).split(BATCH):
            x = augmented(images.x_train[rows]) if cifar else images.x_train[rows]
            with torch.autocast("cpu", torch.bfloat16, enabled=cifar):
                logits = normalised(x.contiguous(memory_format=torch.channels_last))
            optimiser.zero_grad()
            loss = F.cross_entropy(logits.float(), images.y_train[rows])
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss of the last batch {float(loss.detach()):.3f}", flush=True)
    return folded(name, normalised.eval())


def augmented(x):
    """Mirror half of the images, and move each by up to so many pixels."""
    x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    size = x.shape[-1]
    moved = F.pad(x, [SHIFT] * 4).unfold(2, size, 1).unfold(3, size, 1)
    place = torch.randint(2 * SHIFT + 1, (2, len(x)))
    return moved[torch.arange(len(x)), :, place[0], place[1]]


def folded(name, normalised):
    """The network without batch normalisation: each is a part of the convolution before it."""
    parts, plain = iter(normalised), network(name)
    for part in plain:
        before = next(parts)
        if isinstance(part, nn.Conv2d):
            fused = nn.utils.fuse_conv_bn_eval(before, next(parts))
            part.load_state_dict(fused.state_dict())
    return plain


def layers_of(name, weights, x, convolve, leaky_relu):
    """Evaluate a network: every layer's name and units, with functions of a host."""
    strides = [stride for *_, stride in NETS[name][1]]
    for place, stride in enumerate(strides, 1):
        x = convolve(x, *weights[2 * place - 2 : 2 * place], stride)
        yield f"convolution {place}", x
        if place < len(strides):
            x = leaky_relu(x, SLOPE)
            yield f"activation {place}", x
    if name == "cifar":
        yield "mean over positions", x.mean((2, 3))


def measured(host, name, net, x, row):
    """Measure every layer of a network by some units; of the logits all are chosen."""
    weights = [part.detach() for part in net.state_dict().values()]
    generator, units = torch.Generator().manual_seed(0), {}
    for layer, values in layers_of(name, weights, x, F.conv2d, F.leaky_relu):
        units[layer] = torch.randperm(values[0].numel(), generator=generator)[: UNITS[name]]
    run = partial(evaluated, name, units)
    means, spreads = moments.of_draws(by_draws(run, weights, x, row, TOGETHER[name]))
    ends = np.cumsum([len(part) for part in units.values()])[:-1]
    drawn = [np.split(part, ends, axis=-1) for part in (means, spreads)]
    layers = [{"layer": layer} for layer in units]
    for covariance in ("diagonal", "backward"):
        with host.doubles():
            found = propagated(host, name, units, weights, x, row, covariance)
        for layer, stated, true, spread in zip(layers, found, *drawn, strict=True):
            error = float(np.abs(np.asarray(stated.mean) - true).mean() / spread.mean())
            layer[covariance] = {"sd": moments.ratio(stated, spread), "mean": error}
    return layers


def evaluated(name, units, weights, x, convolve=F.conv2d, leaky=F.leaky_relu):
    """The chosen units of every layer."""
    layers = layers_of(name, weights, x, convolve, leaky)
    return [value.reshape(x.shape[0], -1)[:, units[layer]] for layer, value in layers]


def by_draws(run, weights, x, row, together):
    """Units of all layers [draws, images, units], some passes at a time."""
    generator, scale = torch.Generator().manual_seed(0), row["variance"] ** 0.5

    def noisy(part):
        return part + scale * torch.randn(together, *part.shape, generator=generator).to(part)

    for _ in range(row["passes"] // together):
        if row["kind"] == NOISE:
            flat = run(weights, noisy(x).flatten(0, 1))
            drawn = [value.reshape(together, len(x), -1) for value in flat]
        else:
            drawn = torch.vmap(lambda *parts: run(list(parts), x))(*map(noisy, weights))
        yield torch.cat(drawn, -1)


def propagated(host, name, units, weights, x, row, covariance):
    """Moments of the units of every layer in closed form."""
    functions = () if host.NAME == "Pyro" else jax_functions()
    chosen = {layer: host.array(part) for layer, part in units.items()}
    noisy = row["kind"] == NOISE
    arrays = [[host.array(a.double().numpy()) for a in parts] for parts in (weights, [x])]
    certain, random = arrays if noisy else arrays[::-1]
    inputs = [host.package.Moments(a, variance=0 * a + row["variance"]) for a in random]

    def run(*random):
        both = (certain, random[0]) if noisy else (list(random), certain[0])
        return evaluated(name, chosen, *both, *functions)

    return host.package.propagate(run, *inputs, covariance=covariance)


def jax_functions():
    """JAX's functions in the place of torch's."""
    import jax

    def convolve(x, weight, bias, stride):
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(x, weight, strides, "VALID") + bias[:, None, None]

    return convolve, jax.nn.leaky_relu


def off(row):
    """Say where the logits by backward covariance miss what is asked of them."""
    low, high, most = LIMITS.get((row["net"], row["variance"]), USUAL)
    found, name = row["layers"][-1]["backward"], f"{row['net']}, {row['kind']} {row['variance']}"
    trained = row["test_accuracy"] >= LEAST[row["net"]]
    kept = low <= found["sd"] <= high and found["mean"] <= most and trained
    return "" if kept else f"{name}: {found}, test accuracy {row['test_accuracy']:.4f}"


if __name__ == "__main__":
    main()
