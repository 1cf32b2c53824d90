"""One particle: which sites have noise of their own for each row, and how noise is drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from guides.families import mean_field
from moment_calculus.numerics.arrays import standard_deviation


class Particle:
    """What is run once, or by vmap as often as there are particles.

    Args:
        together: names of the sites that are drawn once for all rows.
        is_mean: whether the means of the sites stand for draws.
        by_rows: whether rows may have noise of their own at all.
    """

    def __init__(
        self, together: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        self.together, self.is_mean, self.by_rows = frozenset(together), is_mean, by_rows
        self.noise: list[tuple[frozenset[str], torch.Tensor]] = []
        self.differentiable = False  # whether derivatives by the noise will be asked for

    def rows(self, rows: Any) -> torch.Tensor:
        """Rows with noise of their own.

        Args:
            rows: an :class:`pyro_moments.particles.undrawn.UndrawnRows`.
        """
        noise = torch.randn_like(rows.mean_)
        if self.differentiable and rows.many and len(noise) > 1:
            sites = frozenset(site.name for site in rows.sites)
            self.noise.append((sites, noise.requires_grad_()))
        return mean_field.sample(rows.mean_, standard_deviation(rows.variance_), noise)

    def masked(self, inputs: torch.Tensor, site: Any) -> torch.Tensor:
        """Inputs with a mask for each row.

        Args:
            inputs: of a map, rows of them or one.
            site: a :class:`pyro_moments.particles.site.MaskedSite`.
        """
        noise = site.masks.noise(inputs.shape)
        if self.differentiable and inputs.dim() > 1 and len(inputs) > 1:
            noise = noise.detach().requires_grad_()
            self.noise.append((frozenset([site.name]), noise))
        return inputs * noise


def mixing(
    particle: Particle, terms: Iterable[tuple[torch.Tensor, Collection[int] | None]]
) -> frozenset[str]:
    """The sites whose noise for one row reaches what belongs to other rows.

    A term that is weighed by one or two has derivatives by the noise of its own row that are
    weighed likewise, to the last bit, as all arithmetic of another row goes on beside it; those of
    a row that enters several terms are not. Functions without derivatives are not seen.

    Args:
        particle: that was run with ``differentiable`` noise.
        terms: log-densities, each with the axes (negative) along which its elements may belong
            to rows; None for any axis.

    Returns:
        Their names.
    """
    terms = [(term, dims) for term, dims in terms if term.requires_grad]
    return frozenset().union(*(sites for sites, noise in particle.noise if _mixes(noise, terms)))


def _mixes(noise: torch.Tensor, terms: list[tuple[torch.Tensor, Any]]) -> bool:
    rows = len(noise)
    plain = _slope([term.sum() for term, _ in terms], noise)
    if plain is None:
        return False
    weights = 1.0 + (torch.rand(rows, device=noise.device) < 0.5).to(noise.dtype)
    deepest = max(term.dim() for term, _ in terms)
    for dim in range(-1, -deepest - 1, -1):
        weighed = _slope([_weighed(*term, dim, weights).sum() for term in terms], noise)
        if torch.equal(weighed, plain * weights.reshape(-1, *[1] * (noise.dim() - 1))):
            return False
    return True


def _weighed(term: torch.Tensor, dims: Any, dim: int, weights: torch.Tensor) -> torch.Tensor:
    fits = term.dim() >= -dim and term.shape[dim] == len(weights)
    if not fits or (dims is not None and dim not in dims):
        return term
    return term * weights.reshape(-1, *[1] * (-dim - 1))


def _slope(totals: list[torch.Tensor], noise: torch.Tensor) -> Any:
    total = torch.stack([part.to(noise.dtype) for part in totals]).sum()
    return torch.autograd.grad(total, noise, retain_graph=True, allow_unused=True)[0]
