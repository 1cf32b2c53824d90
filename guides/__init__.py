"""Guides for Pyro and NumPyro, built on the framework-independent code in ``families``."""
