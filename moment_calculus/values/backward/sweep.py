"""One sweep backwards from a few values to the latent sites on which they depend."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from moment_calculus.numerics.arrays import Array, affine, namespace, squared
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.backward.cotangents import Cotangent, OuterCotangent, products
from moment_calculus.values.backward.limits import (
    check_bytes,
    check_pull_rows,
    check_rows,
    check_spread,
    no_pull,
)
from moment_calculus.values.backward.residuals import SharedResiduals, between_positions, noise_of
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.protocols import MapStep, Rewritable
from moment_calculus.values.spread import overlap
from moment_calculus.values.step import Added, entries_of

Kind = Literal["variance", "covariance", "joint"]
"""Of the components of a value, between them, or of functions of one Gaussian together."""


class Part(NamedTuple):
    """What one value adds to the covariance of what is asked for."""

    value: Gaussian
    covariance: Array  # [*rows, K, K]
    kind: Kind = "variance"
    elements: Array | None = None  # of its variance, what each component adds, [*rows, m]


@dataclass(frozen=True)
class Seed:
    """A value that is asked for, and the derivatives of the K numbers by it."""

    value: Gaussian
    cotangent: Cotangent


class _Graph:
    """The values from which others were computed, and how often each of them is used."""

    def __init__(self, values: Sequence[Gaussian]) -> None:
        self.uses = {value.serial: 0 for value in values}
        self.leaves: list[Gaussian] = []
        self._alone: dict[int, bool] = {}
        self._count_uses(values)

    def _count_uses(self, values: Sequence[Gaussian]) -> None:
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if _is_leaf(value):
                self.leaves.append(value)
                continue
            for source in value.step.inputs:
                if source.serial not in self.uses:
                    waiting.append(source)
                self.uses[source.serial] = self.uses.get(source.serial, 0) + 1

    def replaces(self, moved: Gaussian, value: Gaussian, elements_apart: bool) -> bool:
        """Take one value for another, if nothing else uses what it is not computed from itself.

        Unless no number depends on several elements (``elements_apart``), an element that is
        repeated would be taken for independent ones.
        """
        kept = {consumer.serial for consumer in ancestors(moved) if consumer.serial in self.uses}

        def is_left(consumer: Gaussian, input_index: int) -> bool:
            return not _is_leaf(consumer) and consumer.step.inputs[input_index].serial not in kept

        left = list(ancestors(value, is_left))
        if any(self.uses[consumer.serial] != 1 for consumer in left[1:]):
            return False
        repeats = (isinstance(p.step, Rewritable) and p.step.repeats for p in left)
        if not elements_apart and any(repeats):
            return False
        for consumer in left:
            for source in () if _is_leaf(consumer) else consumer.step.inputs:
                self.uses[source.serial] -= 1
        self.uses[moved.serial] = 0
        self._count_uses([moved])
        return True

    def is_alone(self, value: Gaussian) -> bool:
        """Return whether a value is a leaf whose elements no other leaf contains."""
        if value.serial not in self._alone:
            others = (leaf for leaf in self.leaves if leaf is not value)
            self._alone[value.serial] = _is_leaf(value) and not any(
                overlap(value, other) for other in others
            )
        return self._alone[value.serial]

    def is_used_once(self, value: Gaussian) -> bool:
        """Return whether one step takes a value, which is alone or computed from such a one."""
        if self.uses.get(value.serial) != 1:
            return False
        if _is_leaf(value) or len(value.step.inputs) > 1:
            return self.is_alone(value)
        return self.is_used_once(value.step.inputs[0])


def _is_leaf(value: Gaussian) -> bool:
    return not value.step.inputs or entries_of(value) is not None


class Sweep:
    """Computes what every value adds to the covariance of what is asked for."""

    def __init__(self, seeds: Sequence[Seed], split: bool = False) -> None:
        # split: whether weights, biases and their noise are reported each on its own
        self.split = split
        self.graph = _Graph([seed.value for seed in seeds])
        self.parts: list[Part] = []
        self.residuals = SharedResiduals()
        self._values: dict[int, Gaussian] = {}
        self._plain: dict[int, Cotangent] = {}
        self._outer: dict[int, list[OuterCotangent]] = {}
        self._queue: list[int] = []
        for seed in seeds:
            self._send(seed.value, seed.cotangent)
        while self._queue:
            self._visit(self._values.pop(-heapq.heappop(self._queue)))
        self.parts += [Part(*pair, "joint") for pair in self.residuals.parts()]

    def covariance(self) -> Array:
        """Return the covariance of what is asked for, [*rows, K, K]."""
        total = self.parts[0].covariance
        for part in self.parts[1:]:
            total = total + part.covariance
        return total

    def _send(self, value: Gaussian, cotangent: Cotangent | OuterCotangent) -> None:
        serial = value.serial
        if serial not in self._values:
            self._values[serial] = value
            heapq.heappush(self._queue, -serial)
        if isinstance(cotangent, OuterCotangent):
            self._outer.setdefault(serial, []).append(cotangent)
            return
        known = self._plain.get(serial)
        self._plain[serial] = cotangent if known is None else known.plus(cotangent)

    def _visit(self, value: Gaussian) -> None:
        plain = self._plain.pop(value.serial, None)
        outer = self._outer.pop(value.serial, [])
        if outer and (plain is not None or not self._stays_outer(value, outer)):
            check_bytes(value, outer[0])
            formed = [_formed(part, value) for part in outer]
            for part in formed:
                plain = part if plain is None else plain.plus(part)
            outer = []
        if outer:
            self._visit_outer(value, outer)
        elif plain is not None:
            check_rows(value, plain)
            wide = (*plain.array.shape[: plain.lead], *value.shape)
            array = namespace(plain.array).broadcast_to(plain.array, wide)
            self._visit_plain(value, replace(plain, array=array))

    def _visit_plain(self, value: Gaussian, cotangent: Cotangent) -> None:
        if self._ends_at(value, cotangent):
            self._add(value, Added(value.variance), cotangent)
            return
        absorbed, added, between = noise_of(value, cotangent, self._absorbable(value))
        if added is not None:
            self._add(value, added, cotangent)
        if between is not None:
            self.parts.append(Part(value, between_positions(between, cotangent), "joint"))
        for input_index, source in enumerate(value.step.inputs):
            if input_index not in absorbed:
                self._pull(value, input_index, source, cotangent)

    def _ends_at(self, value: Gaussian, cotangent: Cotangent) -> bool:
        """Whether the entries of a site that the value consists of are taken as they are."""
        if entries_of(value) is None or not self.graph.is_alone(value):
            return False
        inner = (n for a, n in _axes(value.shape) if a not in cotangent.carried)
        return value.independent or math.prod(inner) == 1

    def _absorbable(self, value: Gaussian) -> tuple[int, ...]:
        """Return indices of weights and biases, if they are used once and not reported apart."""
        step, sources = value.step, value.step.inputs
        input_indices = step.absorbable(value) if isinstance(step, MapStep) else ()
        once = all(self.graph.is_used_once(sources[input_index]) for input_index in input_indices)
        return input_indices if once and not self.split else ()

    def _add(self, value: Gaussian, added: Added, cotangent: Cotangent) -> None:
        self.residuals.note(value, cotangent)
        left = cotangent.by_rows()
        features = -1 if value.axis is None else value.axis
        is_diagonal = added.times is None or features in cotangent.carried
        if is_diagonal or self.split:
            times = left * cotangent.by_rows(cotangent.wide(added.variance))
            elements = (left * times)[0] if self.split else None
            self.parts.append(Part(value, products(left, times), "variance", elements))
        if not is_diagonal:
            image = cotangent.unflattened(added.times(cotangent.flat()))  # type: ignore[misc]
            if self.split:
                image = image - cotangent.array * cotangent.wide(added.variance)
            kind: Kind = "covariance" if self.split else "variance"
            self.parts.append(Part(value, products(left, cotangent.by_rows(image)), kind))

    def _pull(
        self, value: Gaussian, input_index: int, source: Gaussian, cotangent: Cotangent
    ) -> None:
        step = value.step
        inputs = step.outer_inputs(value, input_index) if isinstance(step, MapStep) else None
        if inputs is not None:
            self._send(source, OuterCotangent(cotangent, inputs))
            return
        if (moved := self._moved_first(value, input_index, cotangent)) is not None:
            self._send(moved, cotangent)
            return
        mixed = _mixed_rows(value, input_index, cotangent)
        for row in mixed[:-1]:
            check_spread(value, cotangent, row)
            cotangent = cotangent.spread(row)
        last = mixed[-1] if mixed else None
        self._send(source, self._pulled(value, input_index, cotangent, last))

    def _moved_first(
        self, value: Gaussian, input_index: int, cotangent: Cotangent
    ) -> Gaussian | None:
        """Return the value with a move of rows before the step of its source, if that is known."""
        step = value.step
        if not isinstance(step, Rewritable) or not _mixed_rows(value, input_index, cotangent):
            return None
        moved = step.move_inputs_first(value)
        if moved is None or moved.shape != value.shape:
            return None
        inner = (n for a, n in _axes(value.shape) if a not in cotangent.carried)
        apart = math.prod(inner) == 1
        return moved if self.graph.replaces(moved, value, apart) else None

    def _pulled(
        self, value: Gaussian, input_index: int, cotangent: Cotangent, row: int | None
    ) -> Cotangent:
        """Return the derivatives by an input; elements along one axis of rows may be mixed."""
        step, source = value.step, value.step.inputs[input_index]
        if row is not None:
            axis = cotangent.axis_of(row)
            check_pull_rows(value, source, cotangent, axis)
            rows = None
            if isinstance(step, MapStep):
                rows = step.pull_rows(value, input_index, cotangent.flat(), axis)
            if rows is not None:
                array = cotangent.rows_in_slot(rows, row)
                carried = self._carried(value, input_index, cotangent, row)
                return Cotangent(array, carried).reduced_to(source.shape)
            check_spread(value, cotangent, row)
            cotangent = cotangent.spread(row)
        pulled = step.pull(value, input_index, cotangent.flat())
        if pulled is None:
            raise no_pull(value)
        array = cotangent.unflattened(pulled)
        carried = self._carried(value, input_index, cotangent)
        return Cotangent(array, carried).reduced_to(source.shape)

    def _carried(
        self, value: Gaussian, input_index: int, cotangent: Cotangent, without: int | None = None
    ) -> tuple[int | None, ...]:
        """Return the axes of an input that carry the rows."""
        return tuple(
            None
            if axis is None or row == without
            else value.step.same_rows(value, input_index, axis)
            for row, axis in enumerate(cotangent.carried)
        )

    # -------------------------------------------------------------------------------------
    # matrices that map inputs

    def _stays_outer(self, value: Gaussian, uses: Sequence[OuterCotangent]) -> bool:
        if _is_leaf(value) and self.graph.is_alone(value) and value.independent:
            return True
        return value.step.affine is not None or value.step.function is not None

    def _visit_outer(self, value: Gaussian, uses: list[OuterCotangent]) -> None:
        if _is_leaf(value):
            self.parts.append(Part(value, _outer_products(value, uses, value.variance)))
            return
        step = value.step
        if (added := step.own(value)) is not None:
            self.parts.append(Part(value, _outer_products(value, uses, added.variance)))
        slope: Any = step.pull(value, 0, namespace(value.mean).ones_like(value.mean)[None])
        for use in uses:
            self._send(step.inputs[0], use.scaled(slope[0]))


def _axes(shape: Sequence[int]) -> list[tuple[int, int]]:
    """Return the negative axes of a shape with their sizes."""
    return list(zip(range(-len(shape), 0), shape, strict=True))


def _mixed_rows(value: Gaussian, input_index: int, cotangent: Cotangent) -> list[int]:
    """Return the axes of the rows whose elements a step mixes, the longest last."""
    mixed = [
        row
        for row, axis in enumerate(cotangent.carried)
        if axis is not None and value.step.same_rows(value, input_index, axis) is None
    ]
    return sorted(mixed, key=lambda row: value.shape[cotangent.axis_of(row)])


def _sides(uses: Sequence[OuterCotangent]) -> tuple[Array, Array]:
    """Return both sides of all products [K, *rows, n, out] and [1, *rows, n, in]."""
    sides = [use.sides() for use in uses]
    if len(sides) == 1:
        return sides[0]
    left, right = (_joined([pair[end] for pair in sides]) for end in (0, 1))
    return left, right


def _joined(parts: Sequence[Array]) -> Array:
    xp, rank = namespace(parts[0]), parts[0].ndim
    lead = [max(part.shape[axis] for part in parts) for axis in range(rank - 2)]
    wide = [xp.broadcast_to(part, (*lead, *part.shape[-2:])) for part in parts]
    return xp.concat(wide, axis=-2)


def _outer_products(value: Gaussian, uses: Sequence[OuterCotangent], variance: Array) -> Array:
    """Return Σ V_oi λ_k,oi λ_l,oi for derivatives by a matrix, [*rows, K, K]."""
    scales = [use.scale for use in uses]
    if all(scale is scales[0] for scale in scales):
        scale = scales[0]
        variance = variance if isinstance(scale, float) else variance * scale * scale
        left, right = _sides(uses)
        if left.shape[-2] == 1:
            left, right = left[..., 0, :], right[..., 0, :]
            return products(left, left * affine(squared(right), variance))
        matrices = left.mT @ right
    else:
        matrices = sum(use.scale * (pair[0].mT @ pair[1]) for use, pair in _with_sides(uses))
    xp = namespace(matrices)
    flat = xp.reshape(matrices, (*matrices.shape[:-2], -1))
    return products(flat, flat * xp.reshape(variance, (-1,)))


def _with_sides(uses: Sequence[OuterCotangent]) -> Iterator[tuple[OuterCotangent, Any]]:
    for use in uses:
        yield use, use.sides()


def _formed(use: OuterCotangent, value: Gaussian) -> Cotangent:
    """Return the derivatives by a matrix, [K, *rows, out, in]."""
    left, right = use.sides()
    return Cotangent(use.scale * (left.mT @ right), (None,) * len(use.outputs.carried))
