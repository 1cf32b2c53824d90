"""Detect ``torch.vmap`` of functions of random values, because it hides the mapped axis."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType

from moment_calculus.errors import UnsupportedMoments
from pyro_moments._host import VMAP_FRAME
from pyro_moments.evaluation.user_line import user_line


def maps_now() -> bool:
    """Return whether ``torch.vmap`` itself, two frames above, looks at a tensor that it maps."""
    return _is_of_vmap(sys._getframe(2))


def is_around() -> bool:
    """Return whether ``torch.vmap`` is among the callers; slow, so for failures only."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (_is_of_vmap(frame) and frame.f_code.co_name == VMAP_FRAME[1]):
        frame = frame.f_back
    return frame is not None


def _is_of_vmap(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == VMAP_FRAME[0]


def vmap_error(sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error, with its remedy, for values of these latent sites under ``torch.vmap``."""
    return UnsupportedMoments(
        "a function of random values is mapped over an axis, which the moment rules cannot see",
        sites=sites,
        remedy="call it on the whole batch: x @ w and functions of torch map all rows at once; or "
        "on each row in a loop, torch.stack([f(row) for row in x])",
        operation="torch.vmap",
        location=user_line(),
    )
