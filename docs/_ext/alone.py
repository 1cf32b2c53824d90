"""Run code of one framework as where the other is not installed."""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar

OTHERS = {
    "pyro": {"jax", "jaxlib", "numpyro", "numpyro_moments"},
    "numpyro": {"torch", "pyro", "pyro_moments"},
}
EXTRAS = {"equinox", "flax", "optax", "sklearn"}  # a block that needs one names it


class Without:
    """A finder of modules for which some packages are not installed."""

    missing: frozenset[str] | set[str] = frozenset()
    wanted: ClassVar[list[str]] = []  # what was looked for among them

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find nothing of these packages."""
        if name.partition(".")[0] in self.missing:
            self.wanted.append(name)
            return None
        return self.finder.find_spec(name, path, target)


def named_extras(code: str) -> set[str]:
    """The further packages that some code names; flax is installed with optax."""
    found = {name for name in EXTRAS if re.search(rf"\b{name}\b", code)}
    return found | {"optax"} if "flax" in found else found


def leave_alone(framework: str, code: str) -> None:
    """Hide the other framework, and further packages that the code does not name, from imports."""
    if not any(isinstance(finder, Without) for finder in sys.meta_path):
        sys.meta_path[:] = map(Without, sys.meta_path)
    Without.missing = OTHERS[framework] | EXTRAS - named_extras(code)
    Without.wanted.clear()
