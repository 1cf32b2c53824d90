"""Bind a guide that was made without a model to its model."""

from __future__ import annotations

from typing import Any

from pyro import poutine


def bind(guide: Any, model: Any) -> None:
    """Bind a guide, possibly inside Pyro's handlers, to its model if it was made without one."""
    unwrapped = poutine.unwrap(guide)
    if hasattr(unwrapped, "bind"):
        unwrapped.bind(model)
