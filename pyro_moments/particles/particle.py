"""One particle: which sites have noise of their own for each row."""

from __future__ import annotations

from collections.abc import Collection


class Particle:
    """What is run once, or by vmap as often as there are particles.

    Args:
        together: names of the sites that are drawn once for all rows.
        is_mean: whether the means of the sites stand for draws.
        by_rows: whether rows may have noise of their own at all.
    """

    def __init__(
        self, together: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        self.together, self.is_mean, self.by_rows = frozenset(together), is_mean, by_rows
