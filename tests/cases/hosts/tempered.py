"""Data of several dependent observations, as users of either host write them."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

INPUTS = np.array([[0.3, -1.0], [1.2, 0.4], [-0.5, 0.8], [0.9, 0.1]])
MATRIX = np.array([[1.0, 0.6], [-0.4, 0.8]])
PAIRS = np.array([[0.2, 0.7], [-0.4, 1.5], [0.1, -0.6], [1.1, 0.3]])
TIMES = np.arange(3.0)
SERIES = np.array([[0.1, 0.8, 1.9], [0.5, 0.2, -0.3], [-1.0, 0.4, 0.6], [0.3, 0.9, 0.2]])
SCALES = np.array([0.5, 0.8])
ROOT = np.array([[0.5, 0.0], [0.3, 0.8]])
MASK = np.array([[True, False], [True, True], [False, False], [False, True]])
MEANS = {"w": np.array([[0.4, -0.7], [0.9, 0.2]]), "a": np.array([[0.5], [-0.2], [0.1], [0.7]])}
MEANS["b"] = MEANS["a"][::-1].copy()
DEVIATIONS = {"w": np.array([[0.3, 0.5], [0.6, 0.2]]), "a": np.full((4, 1), 0.4)}
DEVIATIONS["b"] = np.array([[0.2], [0.5], [0.3], [0.1]])


@dataclass(frozen=True)
class Datum:
    """What is observed.

    Args:
        latent: names of the latent sites.
        sites: from their values to the distributions, observations and scales of the sites.
        axes: those of the data.
        rows: whether the data have the rows of ``INPUTS``, and share w.
    """

    latent: str
    sites: Callable[..., list[tuple[Any, Any, Any]]]
    axes: tuple[int, ...]


def data(dist: ModuleType, array: Callable[[np.ndarray], Any]) -> dict[str, Datum]:
    """Rows by name, of the host's distributions and arrays."""
    x, matrix, y, t, series = map(array, (INPUTS, MATRIX, PAIRS, TIMES, SERIES))
    scales, root, mask = map(array, (SCALES, ROOT, MASK))

    def outputs(w):
        return x @ w @ matrix

    def masked(w):
        return dist.Normal(outputs(w), scales).mask(mask).to_event(1)

    def heads(out):
        return [
            (dist.Normal(out[..., 0], 0.5), y[:, 0], 2.0),
            (dist.Normal(out[..., 1], 0.8), y[:, 1], 1.0),
        ]

    return {
        "event": Datum(
            "w", lambda w: [(dist.Normal(outputs(w), scales).to_event(1), y, 1.0)], (-1,)
        ),
        "scaled event": Datum(
            "w", lambda w: [(dist.Normal(outputs(w), scales).to_event(1), y, 0.4)], (-1,)
        ),
        "masked event": Datum("w", lambda w: [(masked(w), y, 1.0)], (-1,)),
        "independent event": Datum(
            "w", lambda w: [(dist.Laplace(x @ w, scales).to_event(1), y, 1.0)], (-1,)
        ),
        "vector": Datum(
            "w", lambda w: [(dist.MultivariateNormal(outputs(w), scale_tril=root), y, 1.0)], (-1,)
        ),
        "heads": Datum("w", lambda w: heads(outputs(w)), (-1,)),
        "series": Datum("ab", lambda a, b: [(dist.Normal(a + b * t, 0.7), series, 1.0)], (-2,)),
        "one location": Datum(
            "a", lambda a: [(dist.Normal(a, 0.7).expand((*a.shape[:-1], 3)), series, 1.0)], (-2,)
        ),
        "series and scalar": Datum(
            "ab",
            lambda a, b: [
                (dist.Normal(a + b * t, 0.7), series, 1.0),
                (dist.Normal(a, 0.9), series[:, :1], 1.0),
            ],
            (-2,),
        ),
        "independent sites": Datum(
            "ab",
            lambda a, b: [
                (dist.Normal(a, 0.7), series[:, :1], 1.0),
                (dist.StudentT(3.0, b, 0.9), series[:, 1:2], 0.5),
            ],
            (-2,),
        ),
    }
