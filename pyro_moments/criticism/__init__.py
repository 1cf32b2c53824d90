"""Criticism of fits in Pyro: comparisons, checks, containers for ArviZ."""
