"""Results of operations without a moment rule, where terms that need them are drawn instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from moment_calculus import UnsupportedMoments

# Whether a refused operation returns a Refused value; if not, it raises.
HOLDS: ContextVar[bool] = ContextVar("refusals are held", default=False)


class Refused:
    """A random value whose moments are not known, with a tensor of its shape and dtype."""

    def __init__(self, template: torch.Tensor, refusal: UnsupportedMoments) -> None:
        self.template, self.refusal = template, refusal
        self.sites = frozenset(refusal.sites)

    @property
    def shape(self) -> torch.Size:
        """Return the shape."""
        return self.template.shape

    def gaussian(self) -> None:
        """Raise the refusal: there are no moments."""
        raise self.refusal


@contextmanager
def holding(holds: bool) -> Iterator[None]:
    """Hold refusals, or raise them."""
    token = HOLDS.set(holds)
    try:
        yield
    finally:
        HOLDS.reset(token)
