"""Rules of operations that normalise features, such as softmax and layer normalisation."""

from numpyro_moments.rules.normalised import composites

__all__ = ["composites"]
