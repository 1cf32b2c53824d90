"""Find the model of a guide that was made without one, where the framework trains it.

The frameworks' own ``SVI`` and losses tell a guide nothing: they call it with the model's
arguments, while they hold the model beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def model_in_training(guide: Any, framework: str) -> Callable | None:
    """Return the model beside a guide in the outermost ``SVI`` or loss that calls it, or None."""
    frame: FrameType | None = sys._getframe(1)
    model = None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(f"{framework}."):
            # The outermost has the user's model, inner ones wrap it, as in a plate of particles.
            model = next(_models(frame.f_locals, guide), model)
        frame = frame.f_back
    return model


def without_model(name: str) -> RuntimeError:
    """Return the error for a guide that nothing has bound to a model."""
    return RuntimeError(
        f"{name}() has not met a model yet: pass {name}(model), call guide.bind(model), or train "
        "it first, by fit or SVI"
    )


def _models(variables: dict[str, Any], guide: Any) -> Iterator[Callable]:
    owner = variables.get("self")
    if not hasattr(owner, "loss"):  # neither an SVI nor a loss
        return
    pairs = [vars(owner), variables]
    yield from (pair["model"] for pair in pairs if _is_around(pair.get("guide"), guide))


def _is_around(outer: Any, guide: Any) -> bool:
    """Return whether an object is a guide, or one of the framework's handlers around it."""
    while outer is not guide and getattr(outer, "fn", None) is not None:
        outer = outer.fn
    return outer is guide
