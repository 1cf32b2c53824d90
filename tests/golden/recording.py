"""One entry of a dump: the numbers that a call gives, its warnings, and its error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

PLACES = re.compile(r"(/[\w.+-]+)+/|0x[0-9a-f]+|line \d+|:\d+\b")


def recorded(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Numbers by name, and texts without paths, lines and addresses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers, error = compute(), []
        except Exception as raised:
            numbers, error = {}, [f"{type(raised).__name__}: {raised}"]
    texts = {f"{w.category.__name__}: {w.message}" for w in caught if _ours(w.category)}
    return {
        "numbers": {name: np.asarray(value).tolist() for name, value in numbers.items()},
        "texts": [PLACES.sub("", text) for text in [*sorted(texts), *error]],
    }


def _ours(category: type) -> bool:
    return category.__module__.split(".")[0] in ("moment_calculus", "pyro_moments")
