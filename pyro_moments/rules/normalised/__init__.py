"""Rules of operations that normalise features: softmax, layer normalisation."""

from pyro_moments.rules.normalised import composites, normalisation

__all__ = ["composites", "normalisation"]
