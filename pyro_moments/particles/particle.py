"""Settings of a particle: which sites are drawn once for all rows."""

from __future__ import annotations

from collections.abc import Collection


class Particle:
    """Settings of one run of the program, which vmap repeats for several particles."""

    def __init__(
        self, together: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        # Names of sites drawn once for all rows; whether means replace draws; whether rows may
        # have noise of their own at all.
        self.together, self.is_mean, self.by_rows = frozenset(together), is_mean, by_rows
