"""Define the part of the tridiagonal Normal distribution that Pyro and NumPyro share."""

from __future__ import annotations

from guides.families import tridiagonal
from moment_calculus.likelihoods.divergences import gaussian_entropy
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation


class TridiagonalNormalBase:
    """Mixin for a Normal whose neighbours in a chain through each event have correlation ρ."""

    loc: Array  # means, [*batch, *event]
    scale: Array  # signed scales a, like loc: the covariance of neighbours is ρ a_j a_{j+1}
    correlation: Array  # ρ in (−½, ½), a scalar
    order: tridiagonal.Order  # of the elements of an event in the chain

    @property
    def mean(self) -> Array:
        """Return the mean of every element, [*batch, *event]."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Return the variance of every element, [*batch, *event]."""
        return self.scale * self.scale

    @property
    def chains(self) -> tuple[Array, Array, Array]:
        """Return means and scales in the order of the chain, both [*batch, n], and the scalar ρ."""
        return self.order.chain(self.loc), self.order.chain(self.scale), self.correlation

    def log_determinant(self) -> Array:
        """Return log |R| of the correlation matrix R of one event."""
        return tridiagonal.log_determinant(self.order.size, self.correlation)

    def entropy(self) -> Array:
        """Return the entropy of each event, [*batch]."""
        alone = gaussian_entropy(self.order.chain(self.variance))
        return namespace(alone).sum(alone, axis=-1) + 0.5 * self.log_determinant()

    def value(self, name: str, propagation: Propagation) -> Gaussian:
        """Return the Gaussian value of a latent site that has this posterior."""
        parts = self.loc, self.scale, self.correlation
        return tridiagonal.site(name, *parts, propagation, self.order)
