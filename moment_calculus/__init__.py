"""Moments of Gaussians under the operations of a model, on NumPy, torch and JAX arrays alike."""

__version__ = "0.1.0"
