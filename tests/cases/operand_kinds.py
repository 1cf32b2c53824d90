"""Kinds of rows whose rule maps live values: layers and likelihoods; see ``kinds.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values import features_last
from moment_calculus.values.propagation import Propagation
from tests.cases.kinds import Arrays, Outputs
from tests.oracles import quadrature as oracles

FULL = Propagation()


@dataclass(frozen=True)
class Operand:
    """An argument of a layer or likelihood.

    Args:
        shape: its shape.
        kind: ``"certain"``, ``"positive"``, ``"binary"`` or ``"count"`` (certain too),
            ``"independent"``, or ``"correlated"`` over the trailing axis.
        spread: order of its standard deviations.
    """

    shape: tuple[int, ...]
    kind: str = "independent"
    spread: float = 0.7

    @property
    def random(self) -> bool:
        return self.kind in ("independent", "correlated")

    def example(self, generator: np.random.Generator) -> Arrays:
        centre = generator.normal(size=self.shape)
        if self.kind == "positive":
            return (0.5 + np.abs(centre),)
        if self.kind == "certain":
            return (centre,)
        if self.kind == "binary":
            return (np.where(centre > 0, 1.0, 0.0),)
        if self.kind == "count":
            return (np.floor(3 * np.abs(centre)),)
        if self.kind == "independent":
            return centre, self.spread * (0.5 + generator.random(self.shape))
        size = self.shape[-1]
        return centre, self.spread * generator.normal(size=(*self.shape, size)) / math.sqrt(size)

    def value(self, arrays: Arrays, name: str, propagation: Propagation) -> Any:
        """The library's value."""
        if not self.random:
            return arrays[0]
        mean, spread = arrays
        if self.kind == "independent":
            return site_value(name, mean, spread * spread, propagation)
        return as_value(Moments(mean, covariance=spread @ spread.mT), name, propagation)

    def draw(self, arrays: Arrays, z: torch.Tensor) -> torch.Tensor:
        """The plain array at standard normal ``z`` of the operand's shape."""
        mean, spread = arrays
        if self.kind == "independent":
            return mean + spread * z
        return mean + (spread @ z[..., None])[..., 0]


@dataclass(frozen=True)
class OperandCase:
    """Base of layers and likelihoods: a rule on values and the same function on plain arrays.

    Args:
        operands: the arguments, in order.
        rule: the library's function, on values.
        torch: the plain function, on tensors without the axis of samples.
        batched: operands whose leading axis is a batch.
        propagation: how randomness flows.
        extremes: whether float32 results stay finite in the whole range of μ and σ.
        points: random ones of that range.
        status: ``"exact"``, ``"second order"`` or ``"lower bound"``.
        tolerance: largest relative error of an exact rule.
    """

    name: str
    operands: tuple[Operand, ...]
    rule: Callable
    torch: Callable
    batched: tuple[int, ...] = (0,)
    propagation: Propagation = FULL
    extremes: bool = True
    points: int = 15
    status: str = "exact"
    tolerance: float = 1e-9

    def example(self) -> Arrays:
        generator = np.random.default_rng(5)
        return tuple(array for operand in self.operands for array in operand.example(generator))

    def grouped(self, arrays: Arrays) -> list[tuple[Operand, Arrays]]:
        remaining = iter(arrays)
        return [(o, tuple(next(remaining) for _ in range(1 + o.random))) for o in self.operands]

    def apply(self, arrays: Arrays) -> Any:
        values = [
            operand.value(group, f"site{i}", self.propagation)
            for i, (operand, group) in enumerate(self.grouped(arrays))
        ]
        return self.rule(*values)

    def samples(self, arrays: Arrays, z: np.ndarray, sizes: list[int]) -> np.ndarray:
        """The plain function on a grid z [n, Σ sizes]; an operand uses its share for all elements.

        A share is reshaped to the operand's shape, or to its trailing axes if it is smaller.
        """
        groups = self.grouped(tuple(map(torch.as_tensor, arrays)))

        def once(row: torch.Tensor) -> torch.Tensor:
            plain, start = [], 0
            for (operand, group), size in zip(groups, sizes, strict=True):
                share, start = row[start : start + size], start + size
                whole = group[0].shape
                share = share.reshape(whole) if size == whole.numel() else share
                plain.append(operand.draw(group, share.expand(whole)) if size else group[0])
            return self.torch(*plain)

        return torch.vmap(once)(torch.as_tensor(z)).numpy()

    def shrunk(self, arrays: Arrays, by: float) -> Arrays:
        return tuple(
            array
            for _, (centre, *spread) in self.grouped(arrays)
            for array in (centre, *(by * s for s in spread))
        )

    def at_centre(self, arrays: Arrays) -> np.ndarray:
        return self.torch(*(torch.as_tensor(group[0]) for _, group in self.grouped(arrays))).numpy()

    def alone(self, arrays: Arrays, index: int) -> Arrays:
        return tuple(
            array[index : index + 1] if position in self.batched else array
            for position, (_, group) in enumerate(self.grouped(arrays))
            for array in group
        )

    def extreme(self, ratios: np.ndarray, scales: np.ndarray, rho: np.ndarray) -> list[Arrays]:
        """Random operands with μ/σ and σ drawn from the given values in turn; no use for ρ."""
        pairs = {
            (*ratio, *scale): (ratio, scale) for ratio, scale in zip(ratios, scales, strict=True)
        }
        found = [self._extreme(*pair) for pair in pairs.values()]
        if self.batched != tuple(range(len(self.operands))):
            return found
        return [tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))]

    def _extreme(self, ratios: np.ndarray, scales: np.ndarray) -> Arrays:
        return tuple(
            array
            for i, (operand, group) in enumerate(self.grouped(self.example()))
            for array in (_scaled(group, ratios[i % 2], scales[i % 2]) if operand.random else group)
        )


def _scaled(group: Arrays, ratio: float, scale: float) -> Arrays:
    mean, spread = group
    return np.sign(mean) * ratio * scale, spread * scale


@dataclass(frozen=True)
class LayerCase(OperandCase):
    """A layer: its outputs are polynomials of degree ≤ 2 in each scalar, so the grid is exact.

    Args:
        jax: the plain function in JAX; by default that of its name in
            ``tests/numpyro/rules/layer_functions.py``.
    """

    jax: Callable | None = None

    def inputs(self, convert: Callable) -> list[Any]:
        """The operands as arguments of ``propagate``, of arrays by ``convert``."""
        inputs = []
        for operand, arrays in self.grouped(self.example()):
            mean, *spread = map(np.asarray, arrays)
            if operand.kind == "correlated" and self.propagation.has_full_covariance:
                given = {"covariance": convert(spread[0] @ spread[0].mT)}
            else:
                given = {"variance": convert(spread[0] ** 2)} if operand.random else {}
            inputs.append(Moments(convert(mean), **given) if given else convert(mean))
        return inputs

    def check(self, found: Any) -> None:
        """Compare moments that ``propagate`` gave with those of the rule."""
        for part, exact in self.outputs(*self.example()).items():
            own = getattr(found, part)
            # a vector of inputs carries a covariance, that of a site is not stored
            if part != "covariance" or (own is not None and tuple(own.shape) == exact.shape):
                of = f"{part} of {self.name}"
                np.testing.assert_allclose(own, exact, rtol=1e-10, atol=1e-10, err_msg=of)

    def value(self, arrays: Arrays) -> Any:
        return self.apply(arrays).gaussian()

    def outputs(self, *arrays: Any) -> Outputs:
        value = self.value(arrays)
        return {
            "mean": value.mean,
            "variance": value.variance,
            "covariance": value.joint_covariance(),
        }

    def oracle(self, *arrays: Any) -> Outputs:
        sizes = [math.prod(o.shape) if o.random else 0 for o in self.operands]
        z, weights = oracles.hermite_grid(3, sum(sizes))
        samples = self.samples(arrays, z, sizes)
        return oracles.sample_moments(samples, weights, self.value(arrays).axis)

    def plain(self, *arrays: Any) -> Outputs:
        mean = self.at_centre(arrays)
        last = features_last(mean, self.value(arrays).axis)
        zero = np.zeros((*last.shape, last.shape[-1]))
        return {"mean": mean, "variance": np.zeros(mean.shape), "covariance": zero}


@dataclass(frozen=True)
class LikelihoodCase(OperandCase):
    """An expected log density; elements of the batch are integrated one by one.

    Args:
        log_mean: whether the rule is log E[exp(a ·)] / a rather than E[·].
        power: a.
        of_power: the rule as a function of the power, then the operands.
        nodes: of the oracle, in every dimension.
        kinked: whether the oracle's first dimension needs many narrow panels instead.
    """

    tolerance: float = 1e-6
    log_mean: bool = False
    power: float = 1.0
    of_power: Callable | None = None
    nodes: int = 48
    kinked: bool = False

    def outputs(self, *arrays: Any) -> Outputs:
        return {"value": self.apply(arrays)}

    def oracle(self, *arrays: Any) -> Outputs:
        sizes = [self._scalars(operand) for operand in self.operands]
        grid = oracles.narrow_grid if self.kinked else oracles.hermite_grid
        z, weights = grid(self.nodes, sum(sizes))
        samples = self.samples(arrays, z, sizes)
        if self.log_mean:
            powers = np.exp(self.power * samples)
            return {"value": np.log(np.tensordot(weights, powers, axes=1)) / self.power}
        return {"value": np.tensordot(weights, samples, axes=1)}

    def at_power(self, power: float) -> LikelihoodCase:
        """The same row with another power."""
        return replace(self, power=power, rule=partial(self.of_power, power))

    def _scalars(self, operand: Operand) -> int:
        """Random scalars of one element of the batch."""
        return math.prod(operand.shape[1:]) if operand.random else 0

    def plain(self, *arrays: Any) -> Outputs:
        return {"value": self.at_centre(arrays)}
