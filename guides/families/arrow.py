"""Find the plates whose elements are independent given all other sites: an arrow.

There the second derivatives of log p by two elements of a plate are zero, at any point, and the
Gaussian that is nearest to the posterior has such a precision, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian import MAX_DENSE, LatentVector, Plate

NEAR = 0.5  # standard deviation of the random point at which plates are checked
# Second derivatives of log p by the vector of all coordinates times rows [r, d], [r, d].
Products = Callable[[np.ndarray], np.ndarray]
Axes = Sequence[tuple[str, int]]  # plates around a site, and their axes of its free value


class Probe(NamedTuple):
    """Second derivatives along the coordinates of one plate."""

    plate: Plate
    rows: np.ndarray  # one for each column of its blocks, and one for all of them, [k + 1, d]
    images: np.ndarray  # [k + 1, d]

    def misses_blocks(self) -> bool:
        """Return whether elements of the plate depend on each other."""
        places = self.plate.places
        columns = [
            image[places] / row[places[:, at], None]
            for at, (row, image) in enumerate(zip(self.rows[:-1], self.images[:-1], strict=True))
        ]
        expected = np.einsum("njk,nj->nk", np.stack(columns, 1), self.rows[-1][places])
        return bool(np.abs(expected - self.images[-1][places]).max() > self.rounding)

    def reaches(self, other: Plate) -> bool:
        """Return whether elements of the plate depend on those of another."""
        return bool(np.abs(self.images[-1][other.places]).max() > self.rounding)

    @property
    def rounding(self) -> float:
        """Return what rounding may add to an image."""
        return float(np.finfo(self.images.dtype).eps) ** 0.5 * float(np.abs(self.images).max())


def with_plates(vector: LatentVector, axes: Sequence[Axes], products: Products) -> LatentVector:
    """Return a vector of many coordinates with the plates whose elements are independent.

    Of every site it takes the plates and their axes. UnsupportedMoments if the other coordinates
    are too many.
    """
    if vector.size <= MAX_DENSE:
        return vector
    probes = _probes([*_candidates(vector, axes)], products, vector.size)
    reasons = []
    for probe in [*probes]:
        if not np.isfinite(probe.images).all():
            reasons.append(f"the second derivatives by plate '{probe.plate.name}' are not finite")
        elif probe.misses_blocks():
            reasons.append(f"elements of plate '{probe.plate.name}' depend on each other")
        else:
            continue
        probes.remove(probe)
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


def _probes(plates: Sequence[Plate], products: Products, size: int) -> list[Probe]:
    """Return second derivatives along random combinations of the elements of each plate."""
    random, rows = np.random.default_rng(0), list[np.ndarray]()
    for plate in plates:
        block = np.zeros([plate.places.shape[1] + 1, size])
        for at, column in enumerate(plate.places.T):
            block[at, column] = random.uniform(0.5, 1.5, len(column))
        block[-1, plate.places] = random.normal(size=plate.places.shape)
        rows.append(block)
    if not rows:
        return []
    images = products(np.concatenate(rows))
    ends = np.cumsum([len(block) for block in rows])
    parts = np.split(images, ends[:-1])
    return [Probe(*each) for each in zip(plates, rows, parts, strict=True)]
