"""Elementwise functions with their moments under Gaussians."""

from moment_calculus.functions.table import Activation, Integrated, activation

__all__ = ["Activation", "Integrated", "activation"]
