"""Stochastic units as modules of flax.linen; other networks call the functions with a key."""

from __future__ import annotations

from typing import Any

import jax

try:
    from flax import linen
except ImportError as error:
    raise ImportError(
        'modules of stochastic units need flax: pip install "pyro-moments[numpyro,flax]"'
    ) from error

from numpyro_moments.units import functions


class BernoulliLogistic(linen.Module):
    """Layer of zeros and ones with probabilities sigmoid(x); see :func:`bernoulli_logistic`.

    Args:
        rng_collection: stream of keys from which it draws, as of ``linen.Dropout``.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> draw = BernoulliLogistic().apply({}, jnp.zeros(20), rngs={"dropout": jax.random.key(0)})
        >>> sorted({*draw.tolist()})
        [0.0, 1.0]
    """

    rng_collection: str = "dropout"

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Draw.

        Args:
            x: log odds, of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.bernoulli_logistic(self.make_rng(self.rng_collection), x)


class BernoulliProbit(linen.Module):
    """Layer of zeros and ones with probabilities Φ(x); see :func:`bernoulli_probit`.

    Args:
        rng_collection: stream of keys from which it draws, as of ``linen.Dropout``.
    """

    rng_collection: str = "dropout"

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.bernoulli_probit(self.make_rng(self.rng_collection), x)


class StochasticBinary(linen.Module):
    """Layer of indicators of x ≥ z for noise z; see :func:`stochastic_binary`.

    Args:
        noise: a ``Normal`` or ``Logistic`` distribution; standard normal by default.
        rng_collection: stream of keys from which it draws, as of ``linen.Dropout``.
    """

    noise: Any = None
    rng_collection: str = "dropout"

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Zeros and ones in the shape of x.
        """
        return functions.stochastic_binary(self.make_rng(self.rng_collection), x, self.noise)


class StochasticRectifier(linen.Module):
    """Layer of max(x − z, 0) for noise z; see :func:`stochastic_rectifier`.

    Args:
        noise: a ``Normal`` distribution; standard by default.
        rng_collection: stream of keys from which it draws, as of ``linen.Dropout``.
    """

    noise: Any = None
    rng_collection: str = "dropout"

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Draw.

        Args:
            x: of any shape.

        Returns:
            Numbers of zero or more in the shape of x.
        """
        return functions.stochastic_rectifier(self.make_rng(self.rng_collection), x, self.noise)


class GumbelArgmax(linen.Module):
    """Layer that draws a class with logits x; see :func:`gumbel_argmax`.

    Args:
        axis: axis of the classes.
        rng_collection: stream of keys from which it draws, as of ``linen.Dropout``.
    """

    axis: int = -1
    rng_collection: str = "dropout"

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Draw.

        Args:
            x: logits.

        Returns:
            Zeros and ones in the shape of x, a single one along the axis.
        """
        return functions.gumbel_argmax(self.make_rng(self.rng_collection), x, self.axis)
