"""Let one thread at a time run programs: the frameworks' handlers and settings are global.

Two threads that trace models at once would see each other's sites. What a thread does while it
holds the lock may call other functions that take it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Target = TypeVar("Target", bound=Callable[..., Any])
LOCK = threading.RLock()


def one_thread_at_a_time(target: Target) -> Target:
    """Decorate a function, or a class with its public methods and properties, by the lock."""
    if not isinstance(target, type):
        return _locked(target)
    for name, part in list(vars(target).items()):
        if name.startswith("_"):
            continue
        if isinstance(part, property):
            setattr(target, name, property(_locked(part.fget), doc=part.__doc__))
        elif callable(part):
            setattr(target, name, _locked(part))
    return target


def _locked(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with LOCK:
            return function(*args, **kwargs)

    return call
