"""Rules of operations that normalise features: softmax, layer normalisation."""

from numpyro_moments.rules.normalised import composites

__all__ = ["composites"]
