"""Effects by nested inference in both frameworks, beside NUTS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from how_fast import table

Reader = Callable[[str], dict[str, Any]]


def effects(read: Reader) -> str:
    """Evidence, moments of latent sites beside NUTS', and seconds."""
    rows = []
    for name, found in read("effects").items():
        nested, nuts = found["numpyro nested"], found.get("numpyro nuts")
        pyro = found.get("pyro nested")
        apart = abs(nested["evidence"] - pyro["evidence"]) if pyro else None
        rows.append(
            [
                name,
                f"{nested['evidence']:.3f} ± {nested['error']:.3f}",
                "–" if apart is None else f"{apart:.0e}",
                *(_beside(nested["sites"], nuts["sites"]) if nuts else ("–", "–")),
                *("{first:.1f}, {second:.1f}".format(**nested["seconds"]),),
                f"{nuts['seconds']:.0f}" if nuts else "–",
            ]
        )
    head = ["effect", "log evidence ± predicted error", "Pyro's differs by", "worst mean"]
    return table([*head, "standard deviations", "seconds, first and second call", "NUTS"], rows)


def _beside(found: dict[str, Any], nuts: dict[str, Any]) -> tuple[str, str]:
    """Return how far means are off in standard deviations of NUTS, and the range of ratios."""
    parts = ("mean", "deviation")
    ours = {of: np.concatenate([part[of] for part in found.values()]) for of in parts}
    theirs = {of: np.concatenate([nuts[name][of] for name in found]) for of in parts}
    worst = np.abs((ours["mean"] - theirs["mean"]) / theirs["deviation"]).max()
    ratio = ours["deviation"] / theirs["deviation"]
    return f"{worst:.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}"


TABLES: dict[str, Callable[[Reader], str]] = {"effects": effects}
