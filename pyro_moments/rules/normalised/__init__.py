"""Rules of operations that normalise features: softmax, layer normalisation."""

from pyro_moments.rules.normalised import attention, composites, normalisation

__all__ = ["attention", "composites", "normalisation"]
