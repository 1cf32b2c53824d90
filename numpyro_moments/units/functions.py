"""Stochastic units as functions of JAX: they draw, and have exact moments.

Each is drawn anew for every element, by a key that comes from the model's, as of
``numpyro.prng_key()``. With ``propagation="analytic"`` its moments
replace the draws, with ``"sampled"`` every particle has draws of its own, with ``"mean"`` it is
its own mean. Draws of zeros and ones have the straight-through gradient, that of their mean,
which is biased; gradients of moments are exact.

A sum of units is taken as Gaussian. Losses of trained regressions with one and two layers of ten
units were within 0.6 % of draws; of a classifier of 100 steps, whose logits are skewed, up to 3.4 %
below them (``examples/digits_steps.py``).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from numpyro_moments.rules.programs.units import AT_MEAN, below, one_hot_below

Array = jax.Array


def bernoulli_logistic(key: Array, x: Array) -> Array:
    """Draw zeros and ones with probabilities sigmoid(x).

    The mean is E[sigmoid(x)] = m, the variance m (1 − m); covariances with other values are
    those of sigmoid(x). All are as exact as the moments of a sigmoid, to 1e-8.

    Args:
        key: from which it draws.
        x: log odds, of any shape.

    Returns:
        Zeros and ones in the shape of x.

    Source: Shekhovtsov et al. 2018, section 3.4.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> sorted({*bernoulli_logistic(jax.random.key(0), jnp.zeros(20)).tolist()})
        [0.0, 1.0]
    """
    return _drawn(key, jax.nn.sigmoid(x))


def bernoulli_probit(key: Array, x: Array) -> Array:
    """Draw zeros and ones with probabilities Φ(x), of the standard normal distribution.

    Args:
        key: from which it draws.
        x: of any shape.

    Returns:
        Zeros and ones in the shape of x; moments as in :func:`bernoulli_logistic`.

    Source: Shekhovtsov et al. 2018, section 3.4.
    """
    return _drawn(key, jax.scipy.special.ndtr(x))


def stochastic_binary(key: Array, x: Array, noise: Any = None) -> Array:
    """Draw the indicator of x ≥ z, for noise z.

    Args:
        key: from which it draws.
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
    return (bernoulli_logistic if logistic else bernoulli_probit)(key, standard)


def stochastic_rectifier(key: Array, x: Array, noise: Any = None) -> Array:
    """Return max(x − z, 0) for noise z that is drawn.

    Args:
        key: from which it draws.
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
    if AT_MEAN.value:
        return jax.nn.relu(x - noise.loc)
    drawn = jax.random.normal(key, jnp.shape(x), jnp.result_type(x))
    return jax.nn.relu(x - noise.loc - noise.scale * drawn)


def gumbel_argmax(key: Array, x: Array, axis: int = -1) -> Array:
    """Draw the indicator of the largest of x + Gumbel noise: of a class with logits x.

    The mean is that of the softmax, m, the covariance diag(m) − m mᵀ; covariances with other
    values are those of the softmax, scaled down where these would not let E[p pᵀ] be positive.
    Errors of m are those of a softmax: at most 0.015 for logits of variance up to 1.

    Args:
        key: from which it draws.
        x: logits.
        axis: axis of the classes.

    Returns:
        Zeros and ones in the shape of x, a single one along the axis.

    Source: Shekhovtsov et al. 2018, section C.7, equation 58.
    """
    probabilities = jnp.moveaxis(jax.nn.softmax(x, axis), axis, -1)
    if not AT_MEAN.value:
        shape = (*probabilities.shape[:-1], 1)
        uniform = jax.random.uniform(key, shape, probabilities.dtype)
        probabilities = one_hot_below(uniform, probabilities)
    return jnp.moveaxis(probabilities, -1, axis)


def _drawn(key: Array, probability: Array) -> Array:
    if AT_MEAN.value:
        return probability
    return below(jax.random.uniform(key, probability.shape, probability.dtype), probability)


def _checked(noise: Any, unit: str, kinds: tuple[type, ...]) -> Any:
    """Return the noise, standard normal by default; raise for other distributions."""
    noise = dist.Normal(0.0, 1.0) if noise is None else noise
    if not isinstance(noise, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"the noise of {unit} is a {names} distribution, not a {type(noise).__name__}"
        )
    return noise
