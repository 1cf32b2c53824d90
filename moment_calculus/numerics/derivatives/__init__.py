"""Derivatives that are written down rather than found by the framework."""
