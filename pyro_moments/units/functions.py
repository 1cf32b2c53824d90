"""Stochastic units as functions of torch: they draw, and have exact moments.

Each is drawn anew for every element at every call. With ``propagation="analytic"`` its moments
replace the draws, with ``"sampled"`` every particle has draws of its own, with ``"mean"`` it is
its own mean. Draws of zeros and ones have the straight-through gradient, that of their mean,
which is biased; gradients of moments are exact.

A sum of units is taken as Gaussian. Losses of trained regressions with one and two layers of ten
units were within 0.6 % of draws; of a classifier of 100 steps, whose logits are skewed, up to 3.4 %
below them (``examples/digits_steps.py``).
"""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
import torch.nn.functional as F

from pyro_moments.rules.elementwise.dropout import bernoulli_draw

Tensor = torch.Tensor


def bernoulli_logistic(x: Tensor) -> Tensor:
    """Draw zeros and ones with probabilities sigmoid(x).

    The mean is E[sigmoid(x)] = m, the variance m (1 − m); covariances with other values are
    those of sigmoid(x). All are as exact as the moments of a sigmoid, to 1e-8.

    Args:
        x: log odds, of any shape.

    Returns:
        Zeros and ones in the shape of x.

    Source: Shekhovtsov et al. 2018, section 3.4.

    Example:
        >>> import torch
        >>> from pyro_moments import Moments, propagate
        >>> found = propagate(bernoulli_logistic, Moments(torch.zeros(2), variance=torch.ones(2)))
        >>> found.mean.tolist(), found.variance.tolist()
        ([0.5, 0.5], [0.25, 0.25])
    """
    return bernoulli_draw(torch.sigmoid(x))


def bernoulli_probit(x: Tensor) -> Tensor:
    """Draw zeros and ones with probabilities Φ(x), of the standard normal distribution.

    Args:
        x: of any shape.

    Returns:
        Zeros and ones in the shape of x; moments as in :func:`bernoulli_logistic`.

    Source: Shekhovtsov et al. 2018, section 3.4.
    """
    return bernoulli_draw(torch.special.ndtr(x))


def stochastic_binary(x: Tensor, noise: Any = None) -> Tensor:
    """Draw the indicator of x ≥ z, for noise z.

    Args:
        x: of any shape.
        noise: a ``Normal`` or ``Logistic`` distribution whose batch broadcasts to the shape of x;
            standard normal by default.

    Returns:
        Zeros and ones in the shape of x; their probability is the noise's distribution function.

    Raises:
        ValueError: the noise has another distribution.

    Source: Shekhovtsov et al. 2018, lemma B.1.
    """
    noise = _checked(noise, "stochastic_binary", (dist.Normal, dist.Logistic))
    standard = (x - noise.loc) / noise.scale
    logistic = isinstance(noise, dist.Logistic)
    return bernoulli_logistic(standard) if logistic else bernoulli_probit(standard)


def stochastic_rectifier(x: Tensor, noise: Any = None) -> Tensor:
    """Return max(x − z, 0) for noise z that is drawn.

    Args:
        x: of any shape.
        noise: a ``Normal`` distribution whose batch broadcasts to the shape of x; standard by
            default.

    Returns:
        In the shape of x; the moments are those of a ReLU of x − z, which is Gaussian if x is.

    Raises:
        ValueError: the noise has another distribution.

    Source: Shekhovtsov et al. 2018, section B.1.
    """
    noise = _checked(noise, "stochastic_rectifier", (dist.Normal,))
    return torch.relu(x - noise.loc - noise.scale * torch.randn_like(x))


def gumbel_argmax(x: Tensor, dim: int = -1) -> Tensor:
    """Draw the indicator of the largest of x + Gumbel noise: of a class with logits x.

    The mean is that of the softmax, m, the covariance diag(m) − m mᵀ; covariances with other
    values are those of the softmax, scaled down where these would not let E[p pᵀ] be positive.
    Errors of m are those of a softmax: at most 0.015 for logits of variance up to 1.

    Args:
        x: logits.
        dim: axis of the classes.

    Returns:
        Zeros and ones in the shape of x, a single one along the axis.

    Source: Shekhovtsov et al. 2018, section C.7, equation 58.
    """
    return F.gumbel_softmax(x, hard=True, dim=dim)


def _checked(noise: Any, unit: str, kinds: tuple[type, ...]) -> Any:
    """Return the noise, standard normal by default; raise for other distributions."""
    noise = dist.Normal(0.0, 1.0) if noise is None else noise
    if not isinstance(noise, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"the noise of {unit} is a {names} distribution, not a {type(noise).__name__}"
        )
    return noise
