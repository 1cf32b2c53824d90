"""A progress bar that shows the ELBO and its parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

SECONDS = 1.0  # least time between two evaluations of the parts of the ELBO


class Bar:
    """A progress bar over the steps of a training."""

    def __init__(
        self, steps: int, done: int, shown: bool | None, terms: Callable[[], dict[str, float]]
    ) -> None:
        disable = None if shown is None else not shown  # None: tqdm shows it on a terminal only
        self._bar = tqdm(total=steps, initial=done, disable=disable, desc="fit", unit="step")
        self._terms, self._parts, self._looked = terms, "", 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def report(self, steps: int, loss: float) -> None:
        """Show that ``steps`` more steps were made, and the last loss."""
        if self._bar.disable:
            return
        if time.monotonic() - self._looked > SECONDS:
            self._parts, self._looked = parts_in_words(self._terms()), time.monotonic()
        self._bar.set_postfix_str(f"ELBO {-loss:.6g}{self._parts}", refresh=False)
        self._bar.update(steps)


def last_line(text: str, shown: bool | None) -> None:
    """Write a line below a progress bar, if the bar is shown."""
    if shown or (shown is None and sys.stderr.isatty()):
        tqdm.write(text, file=sys.stderr)


def parts_in_words(terms: dict[str, float]) -> str:
    """Describe the sites' contributions to an ELBO, the largest first: ": obs -20, weight -3.5"."""
    largest = sorted(terms.items(), key=lambda term: -abs(term[1]))
    shown = [f"{name} {value:.4g}" for name, value in largest[:4]]
    rest = sum(value for _, value in largest[4:])
    if largest[4:]:
        shown.append(f"others {rest:.4g}")
    return ": " + ", ".join(shown) if shown else ""
