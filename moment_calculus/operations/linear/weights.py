"""Refusals of weights that no map takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moment_calculus.operations.elementwise.arithmetic import DEPENDENCE_REMEDY
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Gaussian, share_sites


def refuse_shared(operands: str, random: Sequence[Gaussian]) -> None:
    """Refuse operands of a map that depend on each other.

    Args:
        operands: what they are, for the message.
        random: those that are random.

    Raises:
        UnsupportedMoments: if two of them share a latent site.
    """
    shared = share_sites(*random)
    if shared:
        raise UnsupportedMoments(
            f"{operands} depend on the same latent site(s) {', '.join(sorted(shared))}: the "
            "moments of a product of dependent values inside a sum are not known",
            sites=shared,
            remedy=DEPENDENCE_REMEDY,
        )


def refuse_tied(what: str, weight: Any, operation: str) -> None:
    """Refuse a random weight whose components depend on each other.

    Args:
        what: the weight, for the message.
        weight: value or array.
        operation: the map, for the message.

    Raises:
        UnsupportedMoments: if its components are dependent.
    """
    if isinstance(weight, Gaussian) and not weight.independent:
        raise UnsupportedMoments(
            f"{what} has dependent components",
            sites=weight.sites,
            remedy="use latent weights with independent components; apply a factor or shift that "
            f"they share to the output of the {operation} instead" + OR_DRAW,
        )
