"""Find the plates whose elements are independent given all other sites, or a chain.

There the second derivatives of log p by two elements of a plate are zero, or by two that are not
near, at any point, and the Gaussian that is nearest to the posterior has such a precision, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian import MAX_DENSE, LatentVector, Plate

NEAR = 0.5  # standard deviation of the random point at which plates are checked
WIDEST = 50  # most coordinates of a block of a chain
COLOURS = 3  # of blocks, so that of one colour none has two neighbours
# Second derivatives of log p by the vector of all coordinates times rows [r, d], [r, d].
Products = Callable[[np.ndarray], np.ndarray]
Axes = Sequence[tuple[str, int]]  # plates around a site, and their axes of its free value


def random_point(vector: LatentVector) -> np.ndarray:
    """Return the unconstrained values at which plates are checked, [d]."""
    return NEAR * np.random.default_rng(0).normal(size=vector.size)


class Probe(NamedTuple):
    """Second derivatives along the coordinates of one plate."""

    plate: Plate
    rows: np.ndarray  # one for each column of the blocks of a colour, and one for all, [r, d]
    images: np.ndarray  # [r, d]

    def misses_blocks(self) -> bool:
        """Return whether second derivatives are other than those of the blocks."""
        places, reach = self.plate.places, 1 if self.plate.is_chain else 0
        expected: np.ndarray = np.zeros(places.shape)
        for step in range(-reach, reach + 1):
            ours = np.arange(max(0, -step), len(places) - max(0, step))
            theirs = ours + step
            colours = theirs % (COLOURS if reach else 1)
            for column in range(places.shape[1]):
                rows = colours * places.shape[1] + column
                other = places[theirs, column]
                ratio = self.rows[-1][other] / self.rows[rows, other]
                expected[ours] += self.images[rows[:, None], places[ours]] * ratio[:, None]
        return bool(np.abs(expected - self.images[-1][places]).max() > self.rounding)

    def reaches(self, other: Plate) -> bool:
        """Return whether elements of the plate depend on those of another."""
        return bool(np.abs(self.images[-1][other.places]).max() > self.rounding)

    @property
    def rounding(self) -> float:
        """Return what rounding may add to an image."""
        return float(np.finfo(self.images.dtype).eps) ** 0.5 * float(np.abs(self.images).max())


def with_plates(vector: LatentVector, axes: Sequence[Axes], products: Products) -> LatentVector:
    """Return a vector of many coordinates with the plates whose elements have few neighbours.

    Of every site it takes the plates and their axes. UnsupportedMoments if the other coordinates
    are too many.
    """
    if vector.size <= MAX_DENSE:
        return vector
    reasons, probes = [], list[Probe]()
    for plate in _candidates(vector, axes):
        probe = _probe(plate, products, vector.size)
        if not np.isfinite(probe.images).all():
            reasons.append(f"the second derivatives by plate '{plate.name}' are not finite")
            continue
        if probe.misses_blocks():
            chain = _chain(plate, products, vector.size)
            probe = probe if chain is None else _probe(chain, products, vector.size)
        if probe.misses_blocks():
            reasons.append(f"elements of plate '{plate.name}' depend on each other")
        else:
            probes.append(probe)
    probes.sort(key=lambda probe: -probe.plate.places.size)
    kept = list[Probe]()
    for probe in probes:
        linked = [other.plate.name for other in kept if other.reaches(probe.plate)]
        if linked:
            reasons.append(f"plates '{linked[0]}' and '{probe.plate.name}' depend on each other")
        else:
            kept.append(probe)
    found = replace(vector, plates=tuple(probe.plate for probe in kept))
    found.check("".join(f"; {reason}" for reason in reasons))
    return found


def _candidates(vector: LatentVector, axes: Sequence[Axes]) -> Iterator[Plate]:
    """Yield the plates, each site in its largest one."""
    places = dict[str, list[np.ndarray]]()
    for name, shape, plates in zip(vector.names, vector.shapes, axes, strict=True):
        sizes = {shape[axis]: (plate, axis) for plate, axis in plates if shape[axis] > 1}
        if sizes:
            plate, axis = sizes[size := max(sizes)]
            part = vector.slices[name]
            own = np.moveaxis(np.arange(part.start, part.stop).reshape(shape), axis, 0)
            places.setdefault(plate, []).append(own.reshape(size, -1))
    for plate, columns in places.items():
        block = np.concatenate(columns, 1)
        if block.shape[1] <= MAX_DENSE:
            yield Plate(plate, block)


def _probe(plate: Plate, products: Products, size: int) -> Probe:
    """Return second derivatives along random combinations of the elements of a plate."""
    random, colours = np.random.default_rng(0), COLOURS if plate.is_chain else 1
    blocks, width = plate.places.shape
    rows = np.zeros([colours * width + 1, size])
    for colour in range(colours):
        for at, column in enumerate(plate.places[colour::colours].T):
            rows[colour * width + at, column] = random.uniform(0.5, 1.5, len(column))
    rows[-1, plate.places] = random.normal(size=[blocks, width])
    return Probe(plate, rows, products(rows))


def _chain(plate: Plate, products: Products, size: int) -> Plate | None:
    """Return a plate as blocks of which each leans on the one before; None if they are too wide.

    Elements lean on so many before them as second derivatives along three elements say; blocks
    have as many, and what is left over is shared.
    """
    elements, width = plate.places.shape
    three = np.array([0, elements // 2, elements - 1])
    rows = np.zeros([len(three), size])
    rows[np.arange(len(three))[:, None], plate.places[three]] = 1.0
    images = np.abs(products(rows)[:, plate.places]).max(2)
    is_reached = images > images.max() * np.finfo(images.dtype).eps ** 0.5
    distances = np.abs(np.arange(elements) - three[:, None])
    reach = int(distances[is_reached].max(initial=1))
    if reach * width > WIDEST or elements < COLOURS * reach:
        return None
    kept = plate.places[elements % reach :]
    return Plate(plate.name, kept.reshape(-1, reach * width), is_chain=True)
