"""Moments as arguments of a model: what stands for them in the model and in the guide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from moment_calculus.numerics import private_apis
from moment_calculus.predictions import Moments, draws_from
from moment_inference.objectives import each_argument, observations
from pyro_moments._host import register_container, tree_flatten, tree_unflatten
from pyro_moments.evaluation.arguments import CALLS, as_tensor


def _parts(moments: Moments) -> tuple[list, bool]:
    has_covariance = moments.covariance is not None
    return [
        moments.mean,
        moments.covariance if has_covariance else moments.variance,
    ], has_covariance


def _from_parts(parts: Any, has_covariance: bool) -> Moments:
    mean, spread = parts
    return Moments(mean, **{"covariance" if has_covariance else "variance": spread})


# Rows, precision and compiled programs see the tensors inside of moments.
register_container(Moments, _parts, _from_parts)

Inputs = Callable[[str, Moments], Any]  # makes the value of an argument, given its name


def moments_in_torch(moments: Moments) -> Moments:
    """Return moments with tensors for arrays of NumPy."""
    return moments if isinstance(moments.mean, torch.Tensor) else moments.mapped(as_tensor)


def is_moments(leaf: Any) -> bool:
    """Return whether a leaf of arguments is uncertain."""
    return isinstance(leaf, Moments)


def at_means(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with the means of moments."""
    return with_values(None, args, kwargs, lambda _, moments: moments.mean)


def with_values(
    model: Any, args: tuple, kwargs: dict[str, Any], value: Inputs
) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with values in the places of moments, named as the model names them."""
    if not any(map(is_moments, tree_flatten((args, kwargs), is_moments)[0])):
        return args, kwargs

    def filled(name: str, argument: Any) -> Any:
        leaves, structure = tree_flatten(argument, is_moments)
        for index in [index for index, leaf in enumerate(leaves) if is_moments(leaf)]:
            inside, moments = f"{name}, part {index}", moments_in_torch(leaves[index])
            observations.check_variances(
                moments.variance.detach().cpu().numpy() if private_apis.is_untraced() else None
            )
            leaves[index] = value(name if is_moments(argument) else inside, moments)
        return tree_unflatten(leaves, structure)

    names = [] if model is None else [*CALLS.parameters(model)]
    return each_argument(args, kwargs, names, filled)


def drawn(_: str, moments: Moments) -> torch.Tensor:
    """Draw an uncertain argument."""
    return draws_from(moments, torch.randn_like(moments.mean))
