"""Priors of effects: their structures, and their statements in both frameworks."""
