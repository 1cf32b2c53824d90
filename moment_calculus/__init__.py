"""Moments of Gaussians under the operations of a model, on NumPy, torch and JAX arrays alike."""
