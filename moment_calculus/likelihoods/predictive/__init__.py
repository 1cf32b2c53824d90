"""Predictive distributions of single elements: distribution functions, entropies, intervals."""
