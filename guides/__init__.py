"""Guides for Pyro and NumPyro, built on the mathematics in ``families``."""
