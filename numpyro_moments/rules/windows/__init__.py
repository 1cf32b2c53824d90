"""Rules of operations on windows that move over the axes of an array."""

from numpyro_moments.rules.windows import convolution, pooling

__all__ = ["convolution", "pooling"]
