"""Moments of multilinear functions, by their derivatives."""

import math

import torch

from pyro_moments import Moments, propagate

MODES = ("full", "backward", "diagonal")


def moments(*shape: int) -> Moments:
    """Means and variances that depend on the shape alone."""
    generator = torch.Generator().manual_seed(math.prod(shape))
    mean = torch.randn(shape, generator=generator)
    return Moments(mean, variance=0.3 + torch.rand(shape, generator=generator))


def expected(function, *operands: Moments) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact moments of a linear or bilinear function of independent elements."""
    means, spreads = [o.mean for o in operands], [o.variance.flatten() for o in operands]
    variance = torch.zeros_like(function(*means))
    for place, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
        slope = torch.func.jacrev(function, place)(*means).flatten(-mean.ndim)
        variance = variance + slope**2 @ spread
    if len(operands) == 2:
        bend = torch.func.jacrev(torch.func.jacrev(function, 0), 1)(*means).flatten(-means[1].ndim)
        bend = bend.flatten(-1 - means[0].ndim, -2)
        variance = variance + torch.einsum("...ij,i,j->...", bend**2, *spreads)
    return function(*means), variance


def check_exact(function, *shapes: tuple[int, ...], modes: tuple[str, ...] = MODES) -> None:
    """Compare the moments of a function of inputs of these shapes in some modes."""
    operands = [moments(*shape) for shape in shapes]
    mean, variance = expected(function, *operands)
    for mode in modes:
        found = propagate(function, *operands, covariance=mode)
        torch.testing.assert_close(found.mean, mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.variance, variance, rtol=1e-10, atol=1e-12)
