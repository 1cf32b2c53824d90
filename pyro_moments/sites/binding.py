"""Meets a guide that was made without a model with its model."""

from __future__ import annotations

from typing import Any

from pyro import poutine


def bind(guide: Any, model: Any) -> None:
    """Bind a guide that was made without a model.

    Args:
        guide: guide, possibly inside Pyro's handlers.
        model: the model it is evaluated with.
    """
    unwrapped = poutine.unwrap(guide)
    if hasattr(unwrapped, "bind"):
        unwrapped.bind(model)
