"""Bind a guide that was made without a model to its model."""

from __future__ import annotations

from typing import Any


def bind(guide: Any, model: Any, params: dict[str, Any] | None = None) -> None:
    """Bind a guide, possibly inside handlers, to its model, and tell it its trained parameters."""
    while not hasattr(guide, "bind") and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    if hasattr(guide, "bind"):
        guide.bind(model)
        if params is not None:
            guide.restore(params)
