"""Whether rows stay apart: whether noise of one row reaches what belongs to another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from pyro_moments.particles.particle import Particle

Term = tuple[torch.Tensor, Collection[int] | None]
"""Log-densities, with the axes (negative) along which elements may belong to rows; None: any."""

_BASE = 16  # of the digits of a row's number, which are the exponents of its weights


def mixing(particle: Particle, terms: Sequence[Term]) -> frozenset[str]:
    """The sites whose noise for one row has derivatives in what belongs to other rows.

    A term that is weighed by a power of two has derivatives by the noise of its own row that are
    weighed likewise, to the last bit, as all arithmetic of another row goes on beside it; those of
    a row that enters several terms are not. Weights by every digit of their number tell all rows
    from each other. What has no derivatives :func:`reached` finds.

    Args:
        particle: that was run with ``differentiable`` noise.
        terms: its log-densities.

    Returns:
        Their names.
    """
    terms = [(term, dims) for term, dims in terms if term.requires_grad]
    return frozenset().union(*(sites for sites, noise in particle.noise if _mixes(noise, terms)))


def reached(before: Sequence[Term], after: Sequence[Term], rows: int) -> bool:
    """Whether other noise in odd rows changes anything that belongs to even ones.

    Args:
        before: log-densities.
        after: with other noise in the odd rows, all else the same.
        rows: how many there are.
    """
    return not any(
        all(
            _same(one, other, dims, dim, rows)
            for (one, dims), (other, _) in zip(before, after, strict=True)
        )
        for dim in _axes(before)
    )


def _axes(terms: Sequence[Term]) -> range:
    return range(-1, -max((term.dim() for term, _ in terms), default=0) - 1, -1)


def _fits(term: torch.Tensor, dims: Collection[int] | None, dim: int, rows: int) -> bool:
    """Whether the elements along an axis may belong to so many rows."""
    fits = term.dim() >= -dim and term.shape[dim] == rows
    return fits and (dims is None or dim in dims)


def _same(one: torch.Tensor, other: torch.Tensor, dims: Any, dim: int, rows: int) -> bool:
    if _fits(one, dims, dim, rows):
        even = torch.arange(0, rows, 2, device=one.device)
        one, other = one.index_select(dim, even), other.index_select(dim, even)
    return torch.equal(one, other)


def _mixes(noise: torch.Tensor, terms: Sequence[Term]) -> bool:
    plain = _slope([term.sum() for term, _ in terms], noise)
    if plain is None:
        return False
    return not any(
        all(_keeps(noise, terms, plain, dim, weights) for weights in _weights(noise))
        for dim in _axes(terms)
    )


def _weights(noise: torch.Tensor) -> Iterator[torch.Tensor]:
    """Powers of two, by each digit of the number of a row."""
    numbers = torch.arange(len(noise), device=noise.device)
    place = 1
    while place < len(noise):
        yield torch.exp2((numbers // place % _BASE).to(noise.dtype))
        place *= _BASE


def _keeps(
    noise: torch.Tensor, terms: Sequence[Term], plain: Any, dim: int, weights: torch.Tensor
) -> bool:
    totals = [
        (_along(weights, -dim) * term if _fits(term, dims, dim, len(noise)) else term).sum()
        for term, dims in terms
    ]
    return torch.equal(_slope(totals, noise), plain * _along(weights, noise.dim()))


def _along(weights: torch.Tensor, axes: int) -> torch.Tensor:
    """Weights of the first of so many axes."""
    return weights.reshape(-1, *[1] * (axes - 1))


def _slope(totals: list[torch.Tensor], noise: torch.Tensor) -> Any:
    if not totals:
        return None
    total = torch.stack([part.to(noise.dtype) for part in totals]).sum()
    return torch.autograd.grad(total, noise, retain_graph=True, allow_unused=True)[0]
