"""Programs of the vocabularies with their sites, and what the library finds for them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from moment_calculus.numerics.arrays import diagonal, namespace
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.linear.tridiagonal import tridiagonal_site
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian
from moment_calculus.values.backward import asked
from moment_calculus.values.backward.cotangents import Cotangent
from moment_calculus.values.backward.sweep import Seed, Sweep
from tests.backward.vocabularies import Library, Plain, Reference
from tests.checks.general import to_torch


@dataclass(frozen=True)
class Case:
    """A program.

    Args:
        name: of the case.
        sites: shapes of the latent sites by name; ``_joint`` in a name says that the
            components along the trailing axis are correlated, ``_chain`` that neighbours are.
        program: of a vocabulary and the sites; constants are arrays of NumPy, which ``like``
            converts.
        linear: whether it is linear in all sites together.
        reference: whether :class:`tests.backward.vocabularies.Reference` can follow it.
    """

    name: str
    sites: dict[str, tuple[int, ...]]
    program: Callable[..., Any]
    linear: bool = False
    reference: bool = True
    seed: int = field(default=7)

    def moments(self, spread: float = 0.6) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Mean and covariance along the trailing axis [..., d, d] of each site."""
        drawn = np.random.default_rng(self.seed)
        found = {}
        for name, shape in self.sites.items():
            mean, size = drawn.normal(size=shape), (shape or (1,))[-1]
            if "_chain" in name:
                covariance = _chain(spread * (0.5 + drawn.random(shape)))
            elif "_joint" in name:
                root = spread * drawn.normal(size=(*shape, size)) / size**0.5
                covariance = root @ np.swapaxes(root, -1, -2)
            else:
                variance = (spread * (0.5 + drawn.random(shape))) ** 2
                covariance = np.eye(size) * np.reshape(variance, (*shape[:-1], 1, size))
            found[name] = mean, covariance
        return found

    def result(self, spread: float = 0.6, array: Callable = torch.as_tensor, **options) -> Gaussian:
        """What the library computes."""
        flow = propagation_of("backward", **{"rules": "exact", **options})
        return self.of_arrays(*self.arrays(spread, array), flow=flow)

    def arrays(self, spread: float = 0.6, array: Callable = torch.as_tensor) -> list[Any]:
        """Means and standard deviations, or covariances, of the sites, in turn."""
        pairs = self.moments(spread).items()
        return [
            array(part)
            for name, (mean, covariance) in pairs
            for part in (mean, _spread(name, mean, covariance))
        ]

    def of_arrays(self, *arrays: Any, flow: Any) -> Gaussian:
        """The result for means and spreads of the sites."""
        values = [
            _site(name, *arrays[2 * place : 2 * place + 2], flow)
            for place, name in enumerate(self.sites)
        ]
        return self.program(Library(), *values).gaussian()

    def example(self) -> list[np.ndarray]:
        """Arguments of :meth:`outputs`."""
        return self.arrays(array=np.asarray)

    def outputs(self, *arrays: Any, rules: Any = "exact") -> dict[str, Any]:
        """What can be asked of the result."""
        return of_modes(self.of_arrays(*arrays, flow=propagation_of("backward", rules)))

    def shrunk(self, arrays: Sequence[Any], by: float) -> list[Any]:
        """The arguments with smaller standard deviations."""
        factors = [
            factor for name in self.sites for factor in (1.0, by * by if _is_joint(name) else by)
        ]
        return [array * factor for array, factor in zip(arrays, factors, strict=True)]

    def plain(self, *arrays: Any) -> dict[str, np.ndarray]:
        """The outputs without randomness."""
        return {mode: np.zeros(a.shape) for mode, a in self.outputs(*to_torch(arrays)).items()}

    def at(self, *means: Any) -> Any:
        """The plain function."""
        return self.program(Plain(), *means)


def _is_joint(name: str) -> bool:
    return "_joint" in name or "_chain" in name


def _chain(deviations: np.ndarray) -> np.ndarray:
    """Covariances of components [..., d] of which neighbours have correlations of 0.4 or −0.4."""
    size = deviations.shape[-1]
    signs = np.where(np.arange(size - 1) % 3 == 1, -0.4, 0.4)
    correlations = np.eye(size) + np.diag(signs, 1) + np.diag(signs, -1)
    return correlations * deviations[..., :, None] * deviations[..., None, :]


def _spread(name: str, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    if _is_joint(name):
        return covariance
    return np.reshape(np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)), mean.shape)


def _site(name: str, mean: Any, spread: Any, flow: Any) -> Gaussian:
    if "_joint" in name:
        return as_value(Moments(mean, covariance=spread), name, flow)
    if "_chain" in name:
        between = namespace(spread).linalg.diagonal(spread, offset=1)
        return tridiagonal_site(name, mean, diagonal(spread), between, flow)
    return site_value(name, mean, spread * spread, flow, event_dim=2 if len(mean.shape) > 1 else 1)


def by_derivatives(case: Case, spread: float) -> torch.Tensor:
    """J V Jᵀ of all elements [n, n], by derivatives of the plain function."""
    pairs = list(case.moments(spread).values())
    means = [torch.as_tensor(mean) for mean, _ in pairs]
    jacobians = torch.func.jacrev(case.at, argnums=tuple(range(len(means))))(*means)
    total = 0.0
    for (mean, covariance), jacobian in zip(pairs, jacobians, strict=True):
        size = covariance.shape[-1]
        rows = jacobian.reshape(-1, max(1, mean.size // size), size)
        blocks = torch.as_tensor(covariance).reshape(-1, size, size)
        total = total + torch.einsum("kbi,bij,lbj->kl", rows, blocks, rows)
    return total


def referred(case: Case, spread: float) -> tuple[Reference, Any]:
    """The reference with noise of sites, then of steps, and its result."""
    flow, arrays = propagation_of("backward", "exact"), case.arrays(spread)
    vocabulary = Reference()
    sites = [
        vocabulary.site(_site(name, *arrays[2 * place : 2 * place + 2], flow))
        for place, name in enumerate(case.sites)
    ]
    return vocabulary, case.program(vocabulary, *sites)


def by_reference(case: Case, spread: float) -> torch.Tensor:
    """The covariance of all elements [n, n] by noise behind every step."""
    vocabulary, result = referred(case, spread)
    return vocabulary.covariance(result)


def of_modes(value: Gaussian) -> dict[str, Any]:
    """What is asked of a value: each element, two elements at once, and the features."""
    found = {"variance": asked.variance(value), "joint": asked.joint([value, value])}
    if value.axis is not None:
        found["covariance"] = asked.covariance(value)
    return found


def of_all_elements(value: Gaussian) -> Any:
    """The covariance of all elements [n, n] by a sweep that keeps no rows apart."""
    size, shape = math.prod(value.shape), value.shape
    numbers = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    return Sweep([Seed(value, Cotangent(numbers, ()))]).covariance()


def expected_modes(value: Gaussian, covariance: Any) -> dict[str, np.ndarray]:
    """The same from the covariance of all elements [n, n]."""
    covariance, shape = np.asarray(covariance), value.shape
    variance = np.diagonal(covariance).reshape(shape)
    found = {
        "variance": variance,
        "joint": np.broadcast_to(variance[..., None, None], (*shape, 2, 2)),
    }
    if value.axis is not None:
        places = np.moveaxis(np.arange(variance.size).reshape(shape), value.axis, -1)
        found["covariance"] = covariance[places[..., :, None], places[..., None, :]]
    return found
