"""Pyro's side of likelihoods and moments of univariate distributions by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution
from torch import distributions
from torch.distributions import constraints

from moment_calculus import likelihoods
from moment_calculus.likelihoods.univariate import (
    Univariate,
    check_unconstrained,
    check_univariate,
)
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import (
    constrained_tensors,
    has_moments,
    random_tensors,
    with_plain_tensors,
)


def draw_observations(fn: Any, count: int, shape: torch.Size) -> torch.Tensor:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _parametrise(fn)
    device = random_tensors(fn)[0].device

    def noise(noise_shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(noise_shape, dtype=torch.double, device=device)

    def align(point: torch.Tensor) -> torch.Tensor:
        axes = (1,) * (len(shape) - point.dim() + 1)
        return point.reshape(count, *axes, *point.shape[1:])

    points = map(align, likelihoods.draw_arguments(arguments, count, noise))
    return ExpandedDistribution(distribution_at(*points), torch.Size((count, *shape))).sample()


def _parametrise(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function from random parameters to the distribution, and the parameters."""
    tensors = random_tensors(fn)
    arguments = [unwrap(tensor) for tensor in tensors]
    check_univariate(fn, arguments)
    parameters = (
        (name, unwrap(tensor), constraint) for name, tensor, constraint in constrained_tensors(fn)
    )
    check_unconstrained(
        fn, parameters, _may_be_unbounded, link_names="torch.exp(h) or torch.sigmoid(h)"
    )

    def distribution_at(*points: torch.Tensor) -> Any:
        shape = torch.broadcast_shapes(fn.batch_shape, *(point.shape for point in points))
        replacements = {id(tensor): point for tensor, point in zip(tensors, points, strict=True)}
        return with_plain_tensors(fn, replacements, shape)

    return distribution_at, arguments


def _may_be_unbounded(constraint: Any) -> bool:
    """Return whether a constraint allows any real number, or cannot be checked."""
    bounds = vars(constraint).values()
    if constraints.is_dependent(constraint) or any(isinstance(b, torch.Tensor) for b in bounds):
        return True
    return all(bool(constraint.check(torch.tensor(point))) for point in (-1.5, 1.5))


def _double(value: Any) -> Any:
    plain = unwrap(value)
    floating = isinstance(plain, torch.Tensor) and plain.is_floating_point()
    return plain.double() if floating else plain


UNIVARIATE = Univariate(
    parametrise=_parametrise,
    vectorise=lambda function, shape: function,  # torch's distributions broadcast
    certain=lambda fn: None if has_moments(fn) else fn,
    support=lambda fn: fn.support,
    is_random=lambda part: isinstance(part, MomentTensor),
    is_floating=torch.is_floating_point,
    double=_double,
    binary=(distributions.Bernoulli,),
    trials=(distributions.Bernoulli, distributions.Binomial),
)
