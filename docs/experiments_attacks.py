"""The tables of attacked digits, of the page of dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Read = Callable[[str], dict[str, Any]]
PLACES = {  # that the text speaks of: an attack, and a level of it
    "before": ("signs", 0),
    "one step of 0.3": ("signs", 6),
    "40 steps towards 0": ("targeted", 40),
    "noise of 0.5": ("noise", 10),
}


def attacks(read: Read) -> str:
    """Accuracy and entropy before and after the attacks."""
    rows = [
        [name, *(f"{found[a]['accuracy'][i]:.3f}, {found[a]['entropy'][i]:.2f}" for a, i in at)]
        for name, found in read("mnist_attacks")["attacks"].items()
        for at in [PLACES.values()]
    ]
    return table(["network: accuracy, entropy", *PLACES], rows)


def energy(read: Read) -> str:
    """The last loss of the network without draws, in closed form and by masks."""
    found = read("mnist_attacks")["loss"]
    drawn = f"{found['value']:.0f} ± {found['standard_error']:.0f}"
    head = ["in closed form", "by masks that are drawn", "what fit says"]
    return table(head, [[f"{found['loss']:.0f}", drawn, found["answer"]]])


TABLES = {"dropout, attacks": attacks, "dropout, energy": energy}
