"""Stochastic units as modules of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pyro_moments.units import functions


class BernoulliLogistic(nn.Module):
    """Layer of zeros and ones with probabilities sigmoid(x); see :func:`bernoulli_logistic`.

    It draws in evaluation mode too; ``propagation="mean"`` takes its mean.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), BernoulliLogistic())
        >>> set(net(torch.randn(5, 3)).flatten().tolist()) <= {0.0, 1.0}
        True
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Draw.

        Args:
            x: log odds, of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.bernoulli_logistic(x)


class BernoulliProbit(nn.Module):
    """Layer of zeros and ones with probabilities Φ(x); see :func:`bernoulli_probit`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.bernoulli_probit(x)


class _WithNoise(nn.Module):
    """A layer with noise."""

    def __init__(self, noise: Any = None) -> None:
        super().__init__()
        self.noise = noise

    def extra_repr(self) -> str:
        """Return the noise."""
        return "" if self.noise is None else str(self.noise)


class StochasticBinary(_WithNoise):
    """Layer of indicators of x ≥ z for noise z; see :func:`stochastic_binary`.

    Args:
        noise: a ``Normal`` or ``Logistic`` distribution; standard normal by default.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.stochastic_binary(x, self.noise)


class StochasticRectifier(_WithNoise):
    """Layer of max(x − z, 0) for noise z; see :func:`stochastic_rectifier`.

    Args:
        noise: a ``Normal`` distribution; standard by default.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Numbers of zero or more in the shape of x.
        """
        return functions.stochastic_rectifier(x, self.noise)


class GumbelArgmax(nn.Module):
    """Layer that draws a class with logits x; see :func:`gumbel_argmax`.

    Args:
        dim: axis of the classes.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Draw.

        Args:
            x: logits.

        Returns:
            Zeros and ones in the shape of x, a single one along the axis.
        """
        return functions.gumbel_argmax(x, self.dim)

    def extra_repr(self) -> str:
        """Return the axis."""
        return f"dim={self.dim}"
