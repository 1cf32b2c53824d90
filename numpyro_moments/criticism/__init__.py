"""Criticism of fits in NumPyro: comparisons, checks, containers for ArviZ."""
