"""Kinds of rows of the case table. Each offers the same few names, on which properties are built.

``example()``     float64 NumPy arguments of the rule
``outputs(*a)``   what the rule returns for arguments of any framework, by name
``oracle(*a)``    the same by quadrature over the plain function
``shrunk(a, by)`` the arguments with their standard deviations multiplied by a number
``plain(*a)``     the outputs without randomness
``alone(a, i)``   the arguments of element i of the batch, if ``batched`` is not empty
``extreme(…)``    arguments with many given μ/σ and σ in as few batches as it can, if ``extremes``
``points``        how many random ones are drawn

Activations and divergences are here, layers and likelihoods in ``tests/cases/operand_kinds.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from moment_calculus.functions.pairs import covariance as pairs
from moment_calculus.functions.table import Activation

Arrays = tuple[Any, ...]
Outputs = dict[str, Any]


def on_numpy(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    """A torch function as a function of NumPy arrays."""
    return lambda *arrays: function(*map(torch.as_tensor, arrays)).numpy()


@dataclass(frozen=True)
class ActivationCase:
    """An activation.

    Args:
        activation: the rule.
        torch: the function that a user calls.
        jax: the same in JAX.
        kinks: where the function bends.
        exact_pairs: whether pairs have a closed form; else a series with a certificate.
        largest_scale: largest standard deviation of the accuracy check.
        growth: 1 for exponential growth, which tilts the Gaussian.
        dvi_error: largest error of the [DVI] form in units of the standard deviations.
    """

    name: str
    activation: Activation
    torch: Callable
    jax: Callable
    kinks: tuple[float, ...] = (0.0,)
    exact_pairs: bool = True
    largest_scale: float = 100.0
    growth: float = 0.0
    dvi_error: float | None = None
    extremes: bool = True
    points: int = 1000
    batched: tuple[int, ...] = (0, 1)
    status: str = "exact"
    tolerance: float = 1e-6

    @property
    def function(self) -> Callable[[np.ndarray], np.ndarray]:
        return on_numpy(self.torch)

    def example(self) -> Arrays:
        generator = np.random.default_rng(3)
        return generator.normal(size=(4, 3)), 0.6 * generator.normal(size=(4, 3, 3))

    def outputs(self, mean: Any, factor: Any) -> Outputs:
        covariance = factor @ factor.mT
        variance = (factor * factor).sum(-1)
        centre, spread = self.activation.moments(mean, variance)
        return {
            "mean": centre,
            "variance": spread,
            "covariance": pairs.covariance(self.activation, mean, covariance),
            "gain": self.activation.gain(mean, variance),
        }

    def shrunk(self, arrays: Arrays, by: float) -> Arrays:
        mean, factor = arrays
        return mean, by * factor

    def plain(self, mean: Any, factor: Any) -> Outputs:
        return {
            "mean": self.function(mean),
            "variance": np.zeros(mean.shape),
            "covariance": np.zeros(factor.shape),
        }

    def alone(self, arrays: Arrays, index: int) -> Arrays:
        return tuple(array[index : index + 1] for array in arrays)

    def extreme(self, ratios: np.ndarray, scales: np.ndarray, rho: np.ndarray) -> list[Arrays]:
        """A batch of pairs with the given μ/σ and σ."""
        one, none = np.ones_like(rho), np.zeros_like(rho)
        rows = (one, none), (rho, np.sqrt(1 - rho * rho))
        factor = np.moveaxis(np.array(rows), -1, 0) * scales[:, :, None]
        return [(ratios * scales, factor)]


@dataclass(frozen=True)
class DivergenceCase:
    """A divergence, entropy or log prior of arrays.

    Args:
        shapes: of the arguments.
        positive: positions of positive arguments.
        function: the rule, of arrays of any framework to one array.
        reference: the oracle, of NumPy arrays to one array.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    positive: tuple[int, ...]
    function: Callable
    reference: Callable
    batched: tuple[int, ...] = (0,)
    extremes: bool = False
    status: str = "exact"
    tolerance: float = 1e-6

    def example(self) -> Arrays:
        generator = np.random.default_rng(7)
        drawn = [generator.normal(size=shape) for shape in self.shapes]
        return tuple(
            0.3 + np.abs(array) if i in self.positive else array for i, array in enumerate(drawn)
        )

    def outputs(self, *arrays: Any) -> Outputs:
        return {"value": self.function(*arrays)}

    def oracle(self, *arrays: Any) -> Outputs:
        return {"value": self.reference(*arrays)}

    def alone(self, arrays: Arrays, index: int) -> Arrays:
        return tuple(array[index : index + 1] for array in arrays)
