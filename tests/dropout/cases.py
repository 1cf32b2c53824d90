"""Rows of maps and values with masks; the oracle sums over all masks there are."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import namespace
from moment_calculus.operations.dropout.masked_weight import SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import drop, multiply_by_noise, variance_ratio
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import einsum, matmul
from moment_calculus.operations.shapes import permute, swap_last
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.spread import all_elements

ROWS, INPUTS, OUTPUTS = 2, 3, 2
SHAPES = {"units": (INPUTS,), "weights": (OUTPUTS, INPUTS)}


@dataclass(frozen=True)
class DropoutCase:
    """A linear map W x + c under masks: of the inputs, or of every weight.

    Args:
        rule: makes the output [rows, out] of a value or array [rows, in] and a masked weight
            [out, in].
        covariance: what is propagated.
        random: whether the inputs are random.
        kind: what has a mask.
    """

    name: str
    rule: Callable[[Any, Any], Any]
    covariance: str = "full"
    random: bool = True
    kind: str = "units"
    batched: tuple[int, ...] = (0, 1)
    extremes: bool = False
    status: str = "exact"
    tolerance: float = 1e-12

    def example(self) -> tuple[np.ndarray, ...]:
        generator = np.random.default_rng(5)
        mean = generator.normal(size=(ROWS, INPUTS))
        factor = 0.6 * generator.normal(size=(ROWS, INPUTS, INPUTS))
        matrix = generator.normal(size=(OUTPUTS, INPUTS))
        return mean, factor, matrix, np.array(0.3)

    def outputs(self, mean: Any, factor: Any, matrix: Any, p: Any) -> dict[str, Any]:
        flow = propagation_of(self.covariance, "exact")
        x = mean if not self.random else random_inputs(mean, factor, flow)
        mask = SiteMask("w", variance_ratio(p), -1, self.kind == "weights")
        y = self.rule(x, masked_weight(matrix, mask, flow)).gaussian()
        found = {"mean": y.mean, "variance": y.variance}
        if self.covariance == "full":
            found["covariance"] = y.joint_covariance()
        return found

    def oracle(self, mean: Any, factor: Any, matrix: Any, p: Any) -> dict[str, Any]:
        covariance = factor @ factor.mT if self.random else 0.0 * factor
        if self.covariance == "diagonal":
            covariance = covariance * np.eye(INPUTS)
        found = over_masks(mean, covariance, matrix, p, SHAPES[self.kind])
        return {name: found[name] for name in self.outputs(mean, factor, matrix, p)}

    def shrunk(self, arrays: Any, by: float) -> Any:
        mean, factor, matrix, p = arrays
        return mean, by * factor, matrix, by * p

    def plain(self, mean: Any, factor: Any, matrix: Any, p: Any) -> dict[str, Any]:
        zeros = np.zeros((ROWS, OUTPUTS))
        found = {"mean": mean @ matrix.T, "variance": zeros}
        if self.covariance == "full":
            found["covariance"] = np.zeros((ROWS, OUTPUTS, OUTPUTS))
        return found

    def alone(self, arrays: Any, i: int) -> Any:
        mean, factor, *rest = arrays
        return mean[i : i + 1], factor[i : i + 1], *rest


def random_inputs(mean: Any, factor: Any, flow: Any) -> Gaussian:
    spread = Spread(covariance=factor @ factor.mT)
    if not flow.has_full_covariance:
        spread = Spread((factor * factor).sum(-1))
    return Gaussian(mean, spread, support=all_elements(["x"]), propagation=flow)


def over_masks(mean: Any, covariance: Any, matrix: Any, p: float, shape: Any) -> dict[str, Any]:
    """Moments of the outputs by the law of total covariance, mask by mask."""
    weights, means, second = [], [], []
    for bits in itertools.product((0, 1), repeat=int(np.prod(shape))):
        kept = sum(bits)
        masked = matrix * (np.reshape(bits, shape) / (1 - p))
        weights.append((1 - p) ** kept * p ** (len(bits) - kept))
        means.append(mean @ masked.T)
        second.append(masked @ covariance @ masked.T)
    weights, means, second = map(np.array, (weights, means, second))
    centre = np.einsum("k,kbo->bo", weights, means)
    deviations = means - centre
    spread = np.einsum("k,kboi->boi", weights, second)
    spread += np.einsum("k,kbo,kbi->boi", weights, deviations, deviations)
    variance = np.diagonal(spread, axis1=-2, axis2=-1)
    return {"mean": centre, "variance": variance, "covariance": spread}


def transposed(x: Any, weight: Any) -> Any:
    return matmul(x, swap_last(weight))


def columns(x: Any, weight: Any) -> Any:
    turned = swap_last(x) if hasattr(x, "gaussian") else namespace(x).permute_dims(x, (1, 0))
    return swap_last(matmul(weight, turned))


def by_einsum(x: Any, weight: Any) -> Any:
    return permute(einsum("io,bi->ob", permute(weight, (1, 0)), x), (1, 0))


def dropped_before(x: Any, weight: Any) -> Any:
    """A layer of dropout, then the map by the certain mean."""
    flow = weight.source.propagation
    return linear(multiply_by_noise(x, weight.mask.noise_variance, "noise", flow), weight.at_mean)


def dropped_by_shared_noise(x: Any, weight: Any) -> Any:
    """The same with noise that nothing shares."""
    ratio = weight.mask.noise_variance
    z = drop(x, ratio / (1 + ratio), "noise", weight.source.propagation, shape=x.shape)
    return linear(z, weight.at_mean)


CASES = [
    DropoutCase("linear", linear),
    DropoutCase("linear_diagonal", linear, covariance="diagonal"),
    DropoutCase("linear_of_certain_inputs", linear, random=False),
    DropoutCase("linear_of_certain_inputs_diagonal", linear, "diagonal", random=False),
    DropoutCase("matmul", transposed),
    DropoutCase("matmul_in_columns", columns),
    DropoutCase("matmul_of_certain_columns", columns, random=False),
    DropoutCase("einsum", by_einsum),
    DropoutCase("dropconnect", linear, kind="weights"),
    DropoutCase("dropconnect_of_certain_inputs", linear, random=False, kind="weights"),
    DropoutCase("dropconnect_diagonal", linear, covariance="diagonal", kind="weights"),
    DropoutCase("layer", dropped_before),
    DropoutCase("layer_on_certain_inputs", dropped_before, random=False),
    DropoutCase("layer_by_product", dropped_by_shared_noise),
]
