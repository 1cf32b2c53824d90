"""Rules of operations that normalise features, such as softmax and layer normalisation."""

from pyro_moments.rules.normalised import composites, normalisation

__all__ = ["composites", "normalisation"]
