"""Meets a guide that was made without a model with its model."""

from __future__ import annotations

from typing import Any


def bind(guide: Any, model: Any) -> None:
    """Bind a guide that was made without a model.

    Args:
        guide: guide, possibly inside NumPyro's handlers.
        model: the model it is evaluated with.
    """
    while not hasattr(guide, "bind") and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    if hasattr(guide, "bind"):
        guide.bind(model)
