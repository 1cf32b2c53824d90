"""LeNet and the CIFAR net of Shekhovtsov et al. (2018, section D.4), trained as plain networks.

    python benchmarks/convolutional_nets.py --data DIR --net cifar --weights cifar.pt

DIR holds images/mnist.npz and images/cifar10_20k.npz. Leaky ReLUs of slope 0.01 and no padding.
Networks train with batch normalisation, which is then folded into the convolution before it, so
that what is stored and measured are convolutions, leaky ReLUs and, for CIFAR, a mean over
positions. CIFAR takes bfloat16 while it trains, mirrored images and those moved by up to 4 pixels.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import hosts
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE, BATCH, SHIFT = 0.01, 128, 4
NETS = {  # file of images, layers: input and output channels, size and stride of the window
    "lenet": ("mnist", [(1, 32, 5, 2), (32, 64, 5, 2), (64, 50, 4, 1), (50, 10, 1, 1)]),
    "cifar": (
        "cifar10_20k",
        [
            (3, 96, 3, 1),
            (96, 96, 3, 1),
            (96, 96, 3, 2),
            (96, 192, 3, 1),
            (192, 192, 3, 1),
            (192, 192, 3, 2),
            (192, 192, 3, 1),
            (192, 192, 1, 1),
            (192, 10, 1, 1),
        ],
    ),
}


class Images(NamedTuple):
    """Images [n, channels, height, width], standardised by channel, and their classes [n]."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    images = load(options.data, options.net)
    net = trained(options.net, images, options.epochs)
    torch.save(net.state_dict(), options.weights)
    print(f"accuracy {accuracy(net, images):.4f}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with images/")
    parser.add_argument("--net", choices=list(NETS), required=True)
    parser.add_argument("--weights", type=Path, required=True, help="file that is written")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


def load(folder: Path, net: str) -> Images:
    with np.load(folder / "images" / f"{NETS[net][0]}.npz") as arrays:
        names = "x_train", "y_train", "x_test", "y_test"
        x_train, y_train, x_test, y_test = (torch.as_tensor(arrays[name]) for name in names)
    x_train, x_test = (channels(x) for x in (x_train, x_test))
    mean, sd = x_train.mean((0, 2, 3), keepdim=True), x_train.std((0, 2, 3), keepdim=True)
    parts = (x_train - mean) / sd, y_train.long(), (x_test - mean) / sd, y_test.long()
    return Images(*parts)


def channels(x: Tensor) -> Tensor:
    """Pixels in [0, 1], the channels first."""
    x = x.float() / 255
    return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()


def network(name: str) -> nn.Sequential:
    """The plain network: logits [n, 10] of images [n, channels, height, width]."""
    *layers, last = NETS[name][1]
    parts: list[nn.Module] = []
    for layer in layers:
        parts += [nn.Conv2d(*layer), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*parts, nn.Conv2d(*last), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def stored(name: str, file: Path) -> nn.Sequential:
    """The network with the weights of a file."""
    net = network(name)
    net.load_state_dict(torch.load(file))
    return net.requires_grad_(requires_grad=False)


def trained(name: str, images: Images, epochs: int) -> nn.Sequential:
    """By Adam, with batch normalisation while it trains."""
    torch.manual_seed(0)
    normalised = nn.Sequential()
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
            x = images.x_train[rows]
            if name == "cifar":
                x = augmented(x)
            with torch.autocast("cpu", torch.bfloat16, enabled=name == "cifar"):
                logits = normalised(x.contiguous(memory_format=torch.channels_last))
            optimiser.zero_grad()
            loss = F.cross_entropy(logits.float(), images.y_train[rows])
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss of the last batch {float(loss.detach()):.3f}", flush=True)
    return folded(name, normalised.eval())


def augmented(x: Tensor) -> Tensor:
    """Mirror half of the images, and move each by up to so many pixels."""
    x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    size = x.shape[-1]
    moved = F.pad(x, [SHIFT] * 4).unfold(2, size, 1).unfold(3, size, 1)
    place = torch.randint(2 * SHIFT + 1, (2, len(x)))
    return moved[torch.arange(len(x)), :, place[0], place[1]]


def folded(name: str, normalised: nn.Sequential) -> nn.Sequential:
    """The network without batch normalisation: each is a part of the convolution before it."""
    parts, plain = iter(normalised), network(name)
    for part in plain:
        before = next(parts)
        if isinstance(part, nn.Conv2d):
            fused = nn.utils.fuse_conv_bn_eval(before, next(parts))
            part.load_state_dict(fused.state_dict())
    return plain.requires_grad_(requires_grad=False)


def accuracy(net: nn.Module, images: Images) -> float:
    """On the test images."""
    with torch.no_grad():
        predicted = torch.cat([net(x).argmax(-1) for x in images.x_test.split(500)])
    return float((predicted == images.y_test).float().mean())


if __name__ == "__main__":
    main()
