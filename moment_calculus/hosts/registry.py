"""Tables of rules that are looked up by the class of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ClassTable(dict[type, Callable]):
    """Functions by class; an object is served by its nearest registered class."""

    def register(self, *kinds: type) -> Callable[[Callable], Callable]:
        """Decorate the function that serves some classes and those derived from them.

        Args:
            kinds: classes.

        Returns:
            The decorator.
        """

        def decorate(function: Callable) -> Callable:
            self.update(dict.fromkeys(kinds, function))
            return function

        return decorate

    def nearest(self, instance: Any) -> Callable | None:
        """Return the function of the nearest registered class of an object, if there is one.

        Args:
            instance: any object.
        """
        return next((self[kind] for kind in type(instance).__mro__ if kind in self), None)
