"""Rows of functions of what dropout switches; the oracle sums over all masks."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import constants
from moment_calculus.operations.dropout.noise import drop
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.rulebooks import propagation_of
from tests.dropout.cases import random_inputs
from tests.oracles.quadrature import hermite_grid, sample_moments

ROWS, INPUTS, NODES = 2, 2, 48
MATRIX = np.array([[0.7, -0.4], [0.3, 1.1], [-0.5, 0.2]])


@dataclass(frozen=True)
class SwitchedCase:
    """A function of x [rows, in] and of layers of dropout.

    Args:
        rule: of a value and of a function that makes a layer of it.
        plain: the same of a tensor.
        masks: how many layers there are.
        random: whether x is random.
        covariance: what is propagated.
    """

    name: str
    rule: Callable[[Any, Callable], Any]
    plain_rule: Callable[[Any, Callable], Any]
    masks: int = 1
    random: bool = True
    covariance: str = "full"
    batched: tuple[int, ...] = (0, 1)
    extremes: bool = False
    status: str = "exact"
    tolerance: float = 1e-7

    def example(self) -> tuple[np.ndarray, ...]:
        generator = np.random.default_rng(7)
        mean = generator.normal(size=(ROWS, INPUTS))
        factor = 0.2 * generator.normal(size=(ROWS, INPUTS, INPUTS))
        return mean, factor, np.array(0.3)

    def value(self, mean: Any, factor: Any, p: Any) -> Any:
        flow = propagation_of(self.covariance, "exact")
        x = random_inputs(mean, factor, flow) if self.random else mean
        names = itertools.count()
        return self.rule(x, lambda h: drop(h, p, f"noise {next(names)}", flow)).gaussian()

    def outputs(self, mean: Any, factor: Any, p: Any) -> dict[str, Any]:
        y = self.value(mean, factor, p)
        return self._of(y, {"mean": y.mean, "variance": y.variance})

    def _of(self, y: Any, found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "covariance": y.joint_covariance()} if self.covariance == "full" else found

    def oracle(self, mean: Any, factor: Any, p: Any) -> dict[str, Any]:
        """Row by row: a sum over its masks, a product rule for its inputs."""
        rows = [self._row(*one, float(p)) for one in zip(mean, factor, strict=True)]
        names = self.outputs(mean, factor, p)
        return {name: np.stack([row[name] for row in rows]) for name in names}

    def _row(self, mean: Any, factor: Any, p: float) -> dict[str, Any]:
        if self.covariance == "diagonal":
            factor = np.diag((factor**2).sum(-1) ** 0.5)
        z, weights = hermite_grid(NODES, INPUTS)
        x = torch.as_tensor(mean + self.random * z @ factor.T)
        values, chances = [], []
        for bits in itertools.product((0.0, 1.0), repeat=self.masks * INPUTS):
            layers = iter(torch.tensor(bits, dtype=torch.float64).reshape(-1, INPUTS) / (1 - p))
            values.append(self.plain_rule(x, lambda h, layers=layers: h * next(layers)))
            chances.append((1 - p) ** sum(bits) * p ** (len(bits) - sum(bits)) * weights)
        return sample_moments(torch.cat(values).numpy(), np.concatenate(chances), -1)

    def shrunk(self, arrays: Any, by: float) -> Any:
        mean, factor, p = arrays
        return mean, by * factor, by * p

    def plain(self, mean: Any, factor: Any, p: Any) -> dict[str, Any]:
        y = self.plain_rule(torch.as_tensor(mean), lambda h: h).numpy()
        found = sample_moments(y[None], np.ones(1), -1)
        return {name: found[name] for name in self.outputs(mean, factor, p)}

    def alone(self, arrays: Any, i: int) -> Any:
        mean, factor, p = arrays
        return mean[i : i + 1], factor[i : i + 1], p


def function(name: str) -> Callable:
    return lambda x: apply(activation(name), x)


TANH, SIGMOID, EXP, SQUARE = map(function, ("tanh", "sigmoid", "exp", "square"))


def once(name: str, of_value: Callable, of_tensor: Callable, **options: Any) -> SwitchedCase:
    """A function of one layer of dropout of x, and of x."""
    return SwitchedCase(
        name, lambda x, d: of_value(d(x), x), lambda x, d: of_tensor(d(x), x), **options
    )


def twice(name: str, rule: Callable, plain: Callable) -> SwitchedCase:
    return SwitchedCase(name, rule, plain, masks=2)


def mapped(x: Any) -> Any:
    return linear(x, constants(MATRIX, x.at_mean))


def turned(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.as_tensor(MATRIX).mT


CASES = [
    once("tanh", lambda y, x: TANH(y), lambda y, x: y.tanh()),
    once("tanh_diagonal", lambda y, x: TANH(y), lambda y, x: y.tanh(), covariance="diagonal"),
    once("exp", lambda y, x: EXP(y), lambda y, x: y.exp()),
    once("square", lambda y, x: multiply(y, y), lambda y, x: y * y),
    once("of_certain_inputs", lambda y, x: EXP(y), lambda y, x: y.exp(), random=False),
    once("chain", lambda y, x: SIGMOID(EXP(y)), lambda y, x: y.exp().sigmoid()),
    once(
        "affine_map_of_one_element",
        lambda y, x: TANH(scale_shift(y, -2.0, 0.3)),
        lambda y, x: (0.3 - 2 * y).tanh(),
    ),
    once("map", lambda y, x: mapped(TANH(y)), lambda y, x: turned(y.tanh())),
    once(
        "function_of_a_map_of_one_input",
        lambda y, x: TANH(
            linear(index(y, (..., slice(0, 1))), constants(MATRIX[:, :1], x.at_mean))
        ),
        lambda y, x: (y[..., :1] @ torch.as_tensor(MATRIX[:, :1]).mT).tanh(),
    ),
    once("beside_itself", lambda y, x: add(y, TANH(y)), lambda y, x: y + y.tanh()),
    once("gate", lambda y, x: multiply(y, SIGMOID(y)), lambda y, x: y * y.sigmoid()),
    once("beside_its_input", lambda y, x: subtract(x, TANH(y)), lambda y, x: x - y.tanh()),
    once("times_its_input", lambda y, x: multiply(x, y), lambda y, x: x * y),
    once(
        "gates_its_input", lambda y, x: multiply(TANH(x), EXP(y)), lambda y, x: x.tanh() * y.exp()
    ),
    once("function_of_a_sum", lambda y, x: TANH(add(x, y)), lambda y, x: (x + y).tanh()),
    once(
        "concatenated",
        lambda y, x: TANH(concatenate([x, y], -1)),
        lambda y, x: torch.cat([x, y], -1).tanh(),
    ),
    once(
        "sliced",
        lambda y, x: add(TANH(index(y, (..., slice(0, 1)))), y),
        lambda y, x: y[..., :1].tanh() + y,
    ),
    SwitchedCase("of_a_function", lambda x, d: TANH(d(EXP(x))), lambda x, d: d(x.exp()).tanh()),
    SwitchedCase(
        "residual_block",
        lambda x, d: TANH(add(x, d(SIGMOID(x)))),
        lambda x, d: (x + d(x.sigmoid())).tanh(),
    ),
    twice("twice", lambda x, d: TANH(d(d(x))), lambda x, d: d(d(x)).tanh()),
    twice(
        "with_a_function_between",
        lambda x, d: SIGMOID(d(TANH(d(x)))),
        lambda x, d: d(d(x).tanh()).sigmoid(),
    ),
    twice("sum_of_two", lambda x, d: TANH(add(d(x), d(x))), lambda x, d: (d(x) + d(x)).tanh()),
    twice("product_of_two", lambda x, d: multiply(d(x), d(x)), lambda x, d: d(x) * d(x)),
    twice(
        "covariance_of_two",
        lambda x, d: add(TANH(d(x)), EXP(d(x))),
        lambda x, d: d(x).tanh() + d(x).exp(),
    ),
]
