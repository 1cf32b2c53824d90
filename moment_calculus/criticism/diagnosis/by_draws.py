"""Report the comparison of the loss with its estimate by draws, which ``fit`` made at its end."""

from __future__ import annotations

import math

from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.optimisation.outcome import ByDraws


def loss_by_draws(found: ByDraws) -> Finding:
    """Judge whether draws of the guide give the same loss as propagated moments."""
    check = "loss by draws"
    if math.isnan(found.loss):
        return Finding(check, "not known", Verdict.UNKNOWN, found.note)
    value = str(found).removeprefix("by draws ")
    if not found.is_off:
        return Finding(check, value, Verdict.GOOD, "moments give the loss that draws give")
    meaning = (
        "moments on the way are approximated too coarsely: the loss is another one by draws of "
        "the same guide, and so may be the optimum"
    )
    return Finding(check, value, Verdict.BAD, meaning, f"train with {found.note}")
