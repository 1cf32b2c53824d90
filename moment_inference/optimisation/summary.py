"""Tables of latent sites in text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

MOST = 20  # most elements of one site that are shown
Columns = Mapping[str, np.ndarray]  # by heading, arrays of the site's shape


def site_table(sites: Mapping[str, Columns]) -> str:
    """Return a table of all latent sites, with the first elements of large ones."""
    headings = next(iter(sites.values()), {})
    rows = [row for name, columns in sites.items() for row in _rows(name, columns)]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{'':{width}s} " + " ".join(f"{heading:>12s}" for heading in headings)]
    for name, numbers in rows:
        lines.append(f"{name:{width}s} " + " ".join(f"{number:12.4g}" for number in numbers))
    return "\n".join(lines)


def _rows(name: str, columns: Columns) -> Iterator[tuple[str, list[float]]]:
    shape = next(iter(columns.values())).shape
    for index in list(np.ndindex(shape))[:MOST]:
        numbers = [float(column[index]) for column in columns.values()]
        yield f"{name}{list(index) if index else ''}", numbers
    if (size := int(np.prod(shape))) > MOST:
        yield f"{name}, {size - MOST} more", []
