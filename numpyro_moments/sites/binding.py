"""Meets a guide that was made without a model with its model."""

from __future__ import annotations

from typing import Any


def bind(guide: Any, model: Any, params: dict[str, Any] | None = None) -> None:
    """Bind a guide that was made without a model, and tell it which sites it was trained on.

    Args:
        guide: guide, possibly inside NumPyro's handlers.
        model: the model it is evaluated with.
        params: trained parameters; by default it has none yet.
    """
    while not hasattr(guide, "bind") and getattr(guide, "fn", None) is not None:
        guide = guide.fn
    if hasattr(guide, "bind"):
        guide.bind(model)
        if params is not None:
            guide.restore(params)
