"""Rules of operations that normalise features, such as softmax and layer normalisation."""

from pyro_moments.rules.normalised import attention, composites, normalisation

__all__ = ["attention", "composites", "normalisation"]
