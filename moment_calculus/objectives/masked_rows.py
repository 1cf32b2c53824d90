"""Check that masks of dropout belong to data: that the rows of their inputs are data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from moment_calculus.errors import OR_DRAW_ONE_MASK, UnsupportedMoments
from moment_calculus.objectives.data import Plate


class ObservedPlates(NamedTuple):
    """The plates around an observed site, and the shape of its value."""

    plates: Sequence[Plate]
    shape: tuple[int, ...]

    def possible_rows(self) -> set[int]:
        """Return the numbers of rows that the data may have."""
        # Rows are elements of the plates around the site, or of some of them; of the
        # subsample or of the full size. Without a plate the axes of the site serve.
        axes = [{plate.size, plate.full_size} for plate in self.plates]
        axes = axes or [{size} for size in self.shape]
        chosen = set(product(*({None, *sizes} for sizes in axes))) - {(None,) * len(axes)}
        return {math.prod(n or 1 for n in sizes) for sizes in chosen} or {1}

    def description(self) -> str:
        """Describe the plates for a message."""
        found = (f"'{plate.name}' of {plate.size} elements" for plate in self.plates)
        return f"plate {', '.join(found)}" if self.plates else f"no plate, of shape {self.shape}"


def check_rows_are_data(weights: Mapping[str, Any], observed: Mapping[str, ObservedPlates]) -> None:
    """Raise UnsupportedMoments for a mask of rows that are no data; each row has one mask."""
    counts: set[int] = set().union(*(site.possible_rows() for site in observed.values()))
    for name, weight in weights.items():
        if weight.mask.uses and counts and weight.mask.rows not in counts:
            raise _no_data(name, weight.mask.rows, observed.items())


def _no_data(
    name: str, rows: int, observed: Iterable[tuple[str, ObservedPlates]]
) -> UnsupportedMoments:
    around = "; ".join(f"'{site}' in {data.description()}" for site, data in observed)
    return UnsupportedMoments(
        f"the masked site '{name}' of MCDropoutGuide maps {rows} row(s) of inputs, which are not "
        f"the data ({around}): a mask is drawn for each datum, and rows of one datum share it",
        sites=[name],
        remedy="give the site one row of inputs for each datum, put what is observed in plates "
        "whose elements are the rows, leave the site unmasked: name the sites to mask in "
        "MCDropoutGuide(p={...})" + OR_DRAW_ONE_MASK,
    )
