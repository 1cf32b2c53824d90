"""What the distributions of chains of both hosts have in common."""

from __future__ import annotations

from guides.families import tridiagonal
from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian


class Chained:
    """Normals whose neighbours in a chain through each event have the correlation ρ.

    Attributes:
        loc: means, [*batch, *event].
        scale: signed scales a, of the same shape: the covariance of neighbours is ρ a_j a_{j+1}.
        correlation: ρ, without axes, in (−½, ½).
        order: of the chain through an event.
    """

    loc: Array
    scale: Array
    correlation: Array
    order: tridiagonal.Order

    @property
    def mean(self) -> Array:
        """Of every element."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Of every element."""
        return self.scale * self.scale

    @property
    def chains(self) -> tuple[Array, Array, Array]:
        """Means and scales in the order of the chain, [*batch, n], and ρ."""
        return self.order.chain(self.loc), self.order.chain(self.scale), self.correlation

    def log_determinant(self) -> Array:
        """log |R| of the correlation matrix of one event."""
        return tridiagonal.log_determinant(self.order.size, self.correlation)

    def entropy(self) -> Array:
        """Of the batch shape."""
        alone = gaussian_entropy(self.order.chain(self.variance))
        return namespace(alone).sum(alone, axis=-1) + 0.5 * self.log_determinant()

    def value(self, name: str, propagation: Propagation) -> Gaussian:
        """The live value of a site with this posterior.

        Args:
            name: the site.
            propagation: how randomness flows from it.
        """
        parts = self.loc, self.scale, self.correlation
        return tridiagonal.site(name, *parts, propagation, self.order)
