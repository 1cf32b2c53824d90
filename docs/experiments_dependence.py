"""The tables of the page on the alarm of mean-field fits, from its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Reader = Callable[[str], dict[str, Any]]
OFF = 0.5  # of NUTS' standard deviation, from which a mean is wrong
THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2)


def known(read: Reader) -> dict[str, dict[str, Any]]:
    """The rows with both figures."""
    return {name: row for name, row in read("dependence").items() if "left" in row}


def models(read: Reader) -> str:
    """Every model, that whose slope is largest first; then those refused."""
    found = known(read)
    rows = []
    for name in sorted(found, key=lambda name: -found[name]["left"]):
        row = found[name]
        rows.append([name, f"{row['left']:.2g}", f"{row['off']:.2f}", row["at"]])
    return table(["model", "nats left", "largest error of a mean", "at"], rows)


def thresholds(read: Reader) -> str:
    """How many models each threshold finds and misses, and where it errs."""
    rows, found = [], known(read).values()
    wrong = [row["left"] for row in found if row["off"] > OFF]
    right = [row["left"] for row in found if row["off"] <= OFF]
    for limit in THRESHOLDS:
        missed, false = sum(left <= limit for left in wrong), sum(left > limit for left in right)
        share = f"{false} of {len(right)} ({100 * false / max(1, len(right)):.0f} %)"
        rows.append([f"{limit:g}", f"{missed} of {len(wrong)}", share])
    return table(["nats", "wrong means missed", "false alarms"], rows)


def refused(read: Reader) -> str:
    """The models without an answer, and why."""
    rows = read("dependence").items()
    reasons = [[name, row["refused"].replace("|", "\\|")] for name, row in rows if "refused" in row]
    return table(["model", "why"], reasons)


TABLES = {
    "dependence, models": models,
    "dependence, thresholds": thresholds,
    "dependence, refused": refused,
}
