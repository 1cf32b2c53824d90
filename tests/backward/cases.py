"""Programs of the vocabularies with their sites, and what the library finds for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from moment_calculus.numerics.arrays import constants
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.predictions.site import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian
from moment_calculus.values.backward import asked
from tests.backward.vocabularies import Library, Plain, Reference
from tests.checks.general import to_torch

RANDOM = np.random.default_rng(35)
X, Z = RANDOM.normal(size=(2, 4, 3))
POSITIONS = RANDOM.normal(size=(2, 5, 3))
A, B = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(3, 2))
GROUPS, SLOPES = np.array([0, 2, 2, 1, 4, 0]), RANDOM.normal(size=6)


@dataclass(frozen=True)
class Case:
    """A program.

    Args:
        name: of the case.
        sites: shapes of the latent sites by name; ``_joint`` in a name says that the
            components along the trailing axis are correlated.
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
            if "_joint" in name:
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
            for part in (mean, covariance if "_joint" in name else _deviations(mean, covariance))
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
            factor for name in self.sites for factor in (1.0, by * by if "_joint" in name else by)
        ]
        return [array * factor for array, factor in zip(arrays, factors, strict=True)]

    def plain(self, *arrays: Any) -> dict[str, np.ndarray]:
        """The outputs without randomness."""
        return {mode: np.zeros(a.shape) for mode, a in self.outputs(*to_torch(arrays)).items()}

    def at(self, *means: Any) -> Any:
        """The plain function."""
        return self.program(Plain(), *means)


def _deviations(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.reshape(np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)), mean.shape)


def _site(name: str, mean: Any, spread: Any, flow: Any) -> Gaussian:
    if "_joint" in name:
        return as_value(Moments(mean, covariance=spread), name, flow)
    return site_value(name, mean, spread * spread, flow, event_dim=2 if len(mean.shape) > 1 else 1)


def by_derivatives(case: Case, spread: float) -> torch.Tensor:
    """J V Jᵀ of all elements [n, n], by automatic differentiation of the plain function."""
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


def by_reference(case: Case, spread: float) -> torch.Tensor:
    """The covariance of all elements [n, n] by noise behind every step."""
    flow, arrays = propagation_of("backward", "exact"), case.arrays(spread)
    vocabulary = Reference()
    sites = [
        vocabulary.site(_site(name, *arrays[2 * place : 2 * place + 2], flow))
        for place, name in enumerate(case.sites)
    ]
    return vocabulary.covariance(case.program(vocabulary, *sites))


def of_modes(value: Gaussian) -> dict[str, Any]:
    """What is asked of a value: each element, two elements at once, and the features."""
    found = {"variance": asked.variance(value), "joint": asked.joint([value, value])}
    if value.axis is not None:
        found["covariance"] = asked.covariance(value)
    return found


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


# -------------------------------------------------------------------------------------------------
# Programs


def like(array: np.ndarray, x: Any) -> Any:
    """A constant with the type of the arrays of a value."""
    mean = getattr(x, "moments", x)
    return constants(array, getattr(mean, "mean", mean) if hasattr(mean, "sites") else mean)


def perceptron(function: str) -> Callable:
    def program(v, w, b, u, c):
        hidden = v.function(function, v.linear(like(X, w), w, b))
        return v.linear(hidden, u, c)

    return program


def residual(v, w, u, o):
    first = v.linear(like(X, w), w)
    return v.linear(v.plus(first, v.function("tanh", v.linear(first, u))), o)


def cell(v, state, w, u):
    """Three steps of a recurrent cell, whose weights are the same."""
    for step in range(3):
        inputs = v.linear(like(X[:2] + step, w), w)
        state = v.function("tanh", v.plus(inputs, v.linear(state, u)))
    return state


def pooled(v, w, u):
    """One network at five positions, and its mean over these."""
    hidden = v.function("relu", v.linear(like(POSITIONS, w), w))
    return v.affine(v.sums(v.linear(hidden, u), [1]), 0.2)


def heads(v, w, u):
    """Two outputs of one hidden layer as values of their own."""
    out = v.linear(v.function("relu", v.linear(like(X, w), w)), u)
    return v.joined([v.take(out, (..., slice(0, 1))), v.take(out, (..., slice(1, 2)))], -1)


def both_sides(v, w, u):
    x = v.linear(like(X, w), w)
    sides = v.function("relu", x), v.function("relu", v.affine(x, -1.0))
    return v.linear(v.joined(sides, -1), u)


def own_gate(v, w, u):
    x = v.linear(like(X, w), w)
    return v.linear(v.product(x, v.function("tanh", x)), u)


def rearranged(v, w, u):
    """A function beside its rows in another order, with one row in its place."""
    values = v.function("relu", v.linear(like(X, w), w))
    moved = v.take(v.take(values, ([1, 0, 3, 2],)), ([0, 1, 3, 2],))
    return v.linear(v.plus(values, moved), u)


def weight_and_function(v, w, u):
    """A weight with different slopes at its uses."""
    positive = v.function("exp", v.affine(w, 0.5))
    hidden = v.function("tanh", v.linear(like(X, w), w))
    return v.plus(v.linear(hidden, w), v.linear(v.linear(like(Z, w), u), positive))


MLP = {"w": (3, 3), "b": (3,), "u": (2, 3), "c": (2,)}
CASES = [
    Case(
        "one random layer",
        {"w": (2, 3), "b": (2,)},
        lambda v, w, b: v.linear(like(X, w), w, b),
        linear=True,
    ),
    Case(
        "a random layer between certain ones",
        {"w": (3, 2), "b": (3,)},
        lambda v, w, b: v.linear(v.linear(like(X @ A.T, w), w, b), like(A, w)),
        linear=True,
    ),
    Case(
        "noisy inputs",
        {"x": (4, 3)},
        lambda v, x: v.linear(v.linear(x, like(A, x)), like(B, x)),
        linear=True,
    ),
    Case(
        "correlated inputs",
        {"x_joint": (4, 3)},
        lambda v, x: v.linear(v.linear(x, like(A, x)), like(B, x)),
        linear=True,
    ),
    Case(
        "slices of one site",
        {"x": (4, 3)},
        lambda v, x: v.minus(
            v.affine(v.take(x, (..., slice(1, 3))), 2.0, 1.0), v.take(x, (..., slice(0, 2)))
        ),
        linear=True,
    ),
    Case(
        "effects of groups",
        {"effects": (5,), "slope": ()},
        lambda v, effects, slope: v.plus(
            v.take(effects, GROUPS), v.product(like(SLOPES, slope), slope)
        ),
        linear=True,
    ),
    Case(
        "effects of groups, summed",
        {"effects": (5,), "mean": ()},
        lambda v, effects, mean: v.sums(v.plus(v.take(effects, GROUPS), mean), [0]),
        linear=True,
    ),
    Case(
        "one layer at several rows",
        {"w": (2, 3)},
        lambda v, w: v.plus(v.linear(like(X, w), w), v.linear(like(Z, w), w)),
        linear=True,
    ),
    Case(
        "one layer at positions, summed",
        {"w": (2, 3)},
        lambda v, w: v.sums(v.linear(like(POSITIONS, w), w), [1]),
        linear=True,
    ),
    Case(
        "scalar products",
        {"v": (3,)},
        lambda v, vector: v.matmul(like(X, vector), vector),
        linear=True,
    ),
    Case(
        "scalar products with a correlated vector",
        {"v_joint": (3,)},
        lambda v, vector: v.matmul(like(X, vector), vector),
        linear=True,
    ),
    Case(
        "columns",
        {"w": (3, 2)},
        lambda v, w: v.permute(v.matmul(like(X, w), w), (1, 0)),
        linear=True,
    ),
    Case(
        "reversed rows of a layer",
        {"w": (2, 3)},
        lambda v, w: v.take(v.linear(like(X, w), w), ([3, 1, 0, 2],)),
        linear=True,
    ),
    Case(
        "reshaped",
        {"x": (4, 3), "shift": (3,)},
        lambda v, x, shift: v.reshape(v.plus(x, shift), (2, 6)),
        linear=True,
    ),
    Case(
        "a cumulative sum",
        {"steps": (5,)},
        lambda v, steps: v.cumulative(steps, 0),
        linear=True,
    ),
    Case("perceptron of tanh", MLP, perceptron("tanh")),
    Case("perceptron of relu", MLP, perceptron("relu")),
    Case("residual", {"w": (3, 3), "u": (3, 3), "o": (2, 3)}, residual),
    Case("recurrent cell", {"state": (2, 3), "w": (3, 3), "u": (3, 3)}, cell),
    Case("pooled positions", {"w": (3, 3), "u": (2, 3)}, pooled),
    Case("a weight and its exponential", {"w": (3, 3), "u": (3, 3)}, weight_and_function),
    Case("rearranged rows", {"w": (3, 3), "u": (2, 3)}, rearranged),
    Case("heads", {"w": (3, 3), "u": (2, 3)}, heads),
    Case(
        "a gate",
        {"w": (3, 3), "u": (3, 3)},
        lambda v, w, u: v.product(
            v.linear(like(X, w), w), v.function("sigmoid", v.linear(like(X, u), u))
        ),
    ),
    Case(
        "softmax",
        {"w": (3, 3), "u": (2, 3)},
        lambda v, w, u: v.linear(v.softmax(v.linear(like(X, w), w)), u),
        reference=False,
    ),
    Case(
        "normalised",
        {"w": (3, 3), "u": (2, 3)},
        lambda v, w, u: v.linear(v.normalised(v.linear(like(X, w), w)), u),
        reference=False,
    ),
    Case(
        "both sides of a relu",
        {"w": (3, 3), "u": (2, 6)},
        both_sides,
        reference=False,
    ),
    Case(
        "an input times its own gate",
        {"w": (3, 3), "u": (2, 3)},
        own_gate,
        reference=False,
    ),
]
