"""Small convolutional networks, spelt for both hosts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzzer.programs import Input

rng = np.random.default_rng(11)
IMAGES = np.round(rng.normal(size=(2, 1, 4, 6)), 2)
SHAPES = {"K": (2, 1, 3, 3), "b": (2,), "L": (3, 2, 2, 2), "W": (3, 6)}
WEIGHTS = [Input(rng.normal(size=s), 0.05 + 0.1 * rng.random(s)) for s in SHAPES.values()]


def _layers(host: str) -> tuple[Callable, Callable, Callable, Callable]:
    """Convolution, largest entries and means of windows 2×2, and relu."""
    if host == "torch":
        import torch
        import torch.nn.functional as F

        return (
            lambda x, w, pad: F.conv2d(x, w, padding=pad),
            lambda x: F.max_pool2d(x, 2),
            lambda x: F.avg_pool2d(x, 2),
            torch.relu,
        )
    import jax
    from jax import lax

    size = (1, 1, 2, 2)
    return (
        lambda x, w, pad: lax.conv(x, w, (1, 1), [(pad, pad)] * 2),
        lambda x: lax.reduce_window(x, -np.inf, lax.max, size, size, "VALID"),
        lambda x: lax.reduce_window(x, 0.0, lax.add, size, size, "VALID") / 4,
        jax.nn.relu,
    )


def networks(host: Any) -> dict[str, tuple[Callable, list[Input]]]:
    """Functions of random weights by name, each with its inputs."""
    convolve, largest, mean, relu = _layers(host.name)
    images = host.array(IMAGES)

    def lenet(K: Any, b: Any, L: Any, W: Any) -> Any:
        h = largest(relu(convolve(images, K, 1) + b.reshape(1, 2, 1, 1)))
        h = mean(relu(convolve(h, L, 1)))
        return h.reshape(2, 6) @ W.T

    return {"lenet": (lenet, WEIGHTS)}
