"""Checks of the operands of linear maps and of other maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.elementwise.sums import DEPENDENCE_REMEDY
from moment_calculus.operations.shapes.reshaping import flattened
from moment_calculus.values import Gaussian, share_sites
from moment_calculus.values.ancestry import branches_of


def random_operands(*operands: Any) -> tuple[Gaussian, ...]:
    """Return the operands that are random."""
    return tuple([operand for operand in operands if isinstance(operand, Gaussian)])


def has_dependent_elements(weight: Any) -> bool:
    """Whether an operand is a matrix of dependent elements with a known covariance."""
    matrix = isinstance(weight, Gaussian) and weight.mean.ndim == 2
    return matrix and not weight.independent and flattened(weight) is not None


def is_one_switched(x: Any, w: Any) -> bool:
    """Whether a random mask switches the only input feature of a map."""
    one = isinstance(x, Gaussian) and x.shape[-1] == 1 and len(w.shape) == 2
    return one and x.axis in (-1, None) and branches_of(x) is not None


def is_plain_bias(bias: Gaussian, weight: Any) -> bool:
    """Whether a bias has one independent component for each output."""
    return bias.axis == -1 and bias.shape == tuple(weight.shape[:1]) and bias.independent


def check_no_shared_sites(operands: str, random: Sequence[Gaussian]) -> None:
    """Raise if two random operands of a map share a latent site; ``operands`` names them.

    A sweep backwards finds what they share; the forward sweep takes them as independent.
    """
    shared = share_sites(*random)
    if shared and not random[0].propagation.is_backward:
        raise UnsupportedMoments(
            f"{operands} depend on the same latent site(s) {', '.join(sorted(shared))}: the "
            "moments of a product of dependent values inside a sum are not known",
            sites=shared,
            remedy=f"use covariance='backward', {DEPENDENCE_REMEDY}",
        )


def check_independent_components(what: str, weight: Any, operation: str) -> None:
    """Raise if the components of a random weight depend on each other; ``what`` names it."""
    if isinstance(weight, Gaussian) and not weight.independent:
        raise UnsupportedMoments(
            f"{what} has dependent components",
            sites=weight.sites,
            remedy="use latent weights with independent components; apply a factor or shift that "
            f"they share to the output of the {operation} instead" + OR_DRAW,
        )


def check_shapes(inputs: Any, weight: Any, bias: Any) -> None:
    """Raise unless the weight is [..., out, in] and the inputs are [..., in]."""
    shape_x, shape_w = tuple(inputs.shape), tuple(weight.shape)
    if len(shape_w) < 2 or not shape_x or shape_x[-1] != shape_w[-1]:
        raise UnsupportedMoments(
            f"a linear map of inputs of shape {shape_x} with a weight of shape {shape_w} is not "
            "supported: weights are [out, in] and inputs [..., in]",
            sites=frozenset().union(*(o.sites for o in random_operands(inputs, weight, bias))),
            remedy="apply one matrix, to inputs whose trailing axis is the contracted one"
            + OR_DRAW,
        )


def check_dependence(inputs: Any, weight: Any, bias: Any, *, linear_in_links: bool = False) -> None:
    """Raise if operands of a linear map share a site, or if the weight has unknown ties."""
    random = random_operands(inputs, weight, bias)
    check_no_shared_sites("the inputs, the weight and the bias of a linear map", random)
    if not linear_in_links:
        check_independent_components("the weight of a linear map", weight, "map")
