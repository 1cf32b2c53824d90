"""Words for whoever waits while a program is compiled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moment_inference.optimisation.training import write_below_bar

_SILENT = False
_shown: ContextVar[bool | None] = ContextVar("shown", default=_SILENT)  # None: on terminals


@contextmanager
def compilation_shown(shown: bool | None) -> Iterator[None]:
    """Tell inside of the first program that is compiled; ``shown`` is that of a progress bar."""
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def compilation() -> Iterator[None]:
    """Tell that a program is being compiled, and then how long it took; once in a training."""
    shown, started = _shown.get(), time.perf_counter()
    # How long it will take depends on machine and compiler more than on the model: no estimate.
    write_below_bar("compiling the loss ...", shown)
    _shown.set(_SILENT)  # other programs of the training, and those inside, take less
    yield
    write_below_bar(f"compiled in {time.perf_counter() - started:.1f} s", shown)
