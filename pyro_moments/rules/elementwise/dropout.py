"""Dropout as it is at evaluation."""

from __future__ import annotations

from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named


@moment_rule(
    *named(
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"
    ),
    *named("feature_dropout"),
)
def dropout(
    input: Value, p: float = 0.5, training: bool = True, inplace: bool = False, train: Any = None
) -> Value:
    """Serve dropout at evaluation, where it is the identity."""
    if (training if train is None else train) and p > 0:
        raise UnsupportedMoments(
            "dropout draws a random mask",
            sites=input.sites,
            remedy="call .eval() on the module, or make the mask a latent site of the model",
        )
    return input
