"""What is measured of networks: contenders beside references, and growth with a size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from timing import Step, measure


@dataclass(frozen=True)
class Measured:
    """Processor seconds of a contender, and the peak of its memory where that is known."""

    name: str
    minimum: float
    median: float
    mebibytes: float | None = None

    def part(self, count: int) -> Measured:
        """One of so many equal parts."""
        return replace(self, minimum=self.minimum / count, median=self.median / count)


@dataclass(frozen=True)
class Row:
    """A contender and its limit: as a ratio to a reference, or in seconds.

    `by` is the statistic of the repeats that counts, "minimum" or "median".
    """

    what: str
    ours: Measured
    by: str
    reference: Measured | None = None
    limit: float | None = None
    in_seconds: bool = False

    @property
    def seconds(self) -> float:
        return getattr(self.ours, self.by)

    @property
    def ratio(self) -> float | None:
        return self.seconds / getattr(self.reference, self.by) if self.reference else None

    @property
    def judged(self) -> float | None:
        return self.seconds if self.in_seconds else self.ratio

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        text = f"{self.what:48s} {self.ours.name:20s} {1e3 * self.seconds:10.3f} ms"
        return f"{text} {ratio:>7s} {_limit(self.limit)}"


@dataclass(frozen=True)
class Growth:
    """Seconds by size, and the limit of their exponent."""

    what: str
    size: str
    name: str
    by: str
    sizes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    limit: float | None = None

    @property
    def judged(self) -> float | None:
        """The exponent: the slope of a line through the logarithms."""
        if len(self.sizes) < 2:
            return None
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    def __str__(self) -> str:
        exponent = "" if self.judged is None else f"{self.judged:.2f}"
        return f"{self.what}, by {self.size}: {self.name} ~ {exponent} {_limit(self.limit)}"


def _limit(limit: float | None) -> str:
    return f"(limit {limit:g})" if limit else ""


def timed(steps: dict[str, Step], repeats: int) -> dict[str, Measured]:
    """Processor seconds of contenders that run in turn."""
    runs = measure(steps, repeats, list, time.process_time)
    return {name: Measured(name, min(part), statistics.median(part)) for name, part in runs.items()}


def compared(
    what: str, by: str, found: dict[str, Measured], limits: dict[str, float]
) -> Iterator[Row]:
    """Rows of contenders beside the first one."""
    reference, *others = found.values()
    for ours in others:
        yield Row(what, ours, by, reference, limits.get(ours.name))


def as_json(found: Iterable[Row | Growth]) -> dict[str, list[dict]]:
    """Rows and growths with what they were judged by."""
    result: dict[str, list[dict]] = {"rows": [], "growths": []}
    for item in found:
        if isinstance(item, Row):
            result["rows"].append(asdict(item) | {"ratio": item.ratio})
        else:
            result["growths"].append(asdict(item) | {"exponent": item.judged})
    return result


def exceeded(found: Iterable[Row | Growth]) -> list[str]:
    """What is above its limit."""
    return [str(item) for item in found if item.limit and (item.judged or 0.0) > item.limit]
